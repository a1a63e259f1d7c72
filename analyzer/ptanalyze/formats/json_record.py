"""JSON files with a format name and a version, read strictly and written whole."""

import msgspec

from ..errors import CaptureError
from .atomic import atomic_write


def decode_record(path, text, kind, form, version, facts=None):
    """A msgspec struct of type `kind`, with fields `format` and `version`, from the bytes of file `path`.

    facts  struct that the raw field `facts` has to fit, if there is one
    CaptureError names file, field and value where the text is no such record, foreign, or of another version.
    """
    try:
        record = msgspec.json.decode(text, type=kind)
        if facts is not None:
            msgspec.json.decode(record.facts, type=facts)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CaptureError(path, "contents", text[:30], f"not a {form} file: {error}") from None
    if record.format != form:
        raise CaptureError(path, "format", record.format, f"expected {form}")
    if record.version != version:
        raise CaptureError(path, "version", record.version, f"this release reads version {version}")
    return record


def write_record(path, record):
    """Write a msgspec struct as indented JSON: whole, synced, 0600."""
    with atomic_write(path) as out:
        out.write(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
