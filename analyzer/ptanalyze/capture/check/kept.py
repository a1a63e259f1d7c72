"""Data kept inside a capture that others made: never read, but worth knowing."""

from collections.abc import Iterator
from pathlib import Path

from ...core.errors import CaptureError
from ...core.regular import NAME, content_of, read_inside
from ...formats.capture import KEPT, Capture
from ...formats.capture_dir import TRACE
from ...formats.trace_index import INDEX, most_bytes
from ...world.stream_store import LONGEST_SEAL, SEAL
from .finding import NOTE, Finding

NOT_OURS = "not made by this user, or of other contents of the capture: never read; may be deleted"


def check_kept(capture: Capture) -> Iterator[Finding]:
    """A Finding if anything in the capture's .cache was not made by this user from this capture."""
    most = most_bytes((capture.directory / TRACE).stat().st_size) if capture.has_trace else 0
    top = capture.directory / KEPT
    inside = _inside(top) if _is_directory(top) else []
    kept = [path for one in inside for path in (_inside(one) if _is_directory(one) else [one])]
    identity = capture.identity if kept else ""
    others = [path for path in kept if not _is_ours(path, identity, most)]
    if others:
        yield Finding("kept data: made by this user", len(kept), len(others), NOTE, NOT_OURS)


def _inside(directory: Path) -> list[Path]:
    try:
        return [path for path in directory.iterdir() if not NAME.fullmatch(path.name)]
    except OSError:
        return []


def _is_directory(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _is_ours(path: Path, identity: str, most: int) -> bool:
    file, size = (path, most) if path.name == INDEX else (path / SEAL, LONGEST_SEAL)
    try:
        return path.parent.name == identity and content_of(path, read_inside(file, size)) is not None
    except (OSError, CaptureError):
        return False
