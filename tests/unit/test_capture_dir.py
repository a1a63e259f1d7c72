import json
import os
import re

import pytest

from ptanalyze.core.errors import CaptureError, UsageError
from ptanalyze.formats.atomic import atomic_write
from ptanalyze.formats.manifest import (
    MANIFEST,
    damaged_files,
    manifest_crc,
    must_be_new,
    new_capture,
    read_manifest,
    seal,
)


@pytest.fixture
def sealed(tmp_path):
    (tmp_path / "gpt.entries").write_bytes(bytes(range(256)) * 40)
    (tmp_path / "maps").write_bytes(b"")
    seal(tmp_path, "process", {"command": "true"})
    return tmp_path


def test_a_sealed_capture_reads_back_and_is_undamaged(sealed):
    manifest = read_manifest(sealed)
    assert manifest.kind == "process"
    assert manifest.files["gpt.entries"].bytes == 10240
    assert manifest.provenance == {"command": "true"}
    assert list(damaged_files(sealed, manifest)) == []


def test_the_manifest_can_be_read_by_its_owner_only(sealed):
    assert (sealed / MANIFEST).stat().st_mode & 0o777 == 0o600


def test_one_flipped_bit_is_found(sealed):
    content = bytearray((sealed / "gpt.entries").read_bytes())
    content[5000] ^= 1
    (sealed / "gpt.entries").write_bytes(content)
    ((name, reason),) = damaged_files(sealed, read_manifest(sealed))
    assert name == "gpt.entries" and "CRC-32" in reason


def test_a_truncated_and_a_missing_file_are_found(sealed):
    os.truncate(sealed / "gpt.entries", 17)
    (sealed / "maps").unlink()
    assert dict(damaged_files(sealed, read_manifest(sealed))) == {
        "gpt.entries": "17 bytes, sealed with 10240",
        "maps": "missing",
    }


def test_a_directory_without_manifest_is_no_capture(tmp_path):
    with pytest.raises(UsageError, match="no finished capture"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 99}, "version = 99: this release reads version 1"),
        ({"format": "tarball"}, "format = tarball"),
        ({"kind": "core"}, "kind = core"),
        ({"files": {"../passwd": {"bytes": 1, "crc32": 0}}}, "must stay inside"),
        ({"surprise": 1}, "surprise: no such field"),
        ({"files": {"maps": {"bytes": "many", "crc32": 0}}}, r"files.*\.bytes: Expected `int`"),
    ],
)
def test_a_foreign_or_hostile_manifest_is_named_by_field_and_value(sealed, change, message):
    manifest = json.loads((sealed / MANIFEST).read_text()) | change
    manifest["crc32"] = manifest_crc(json.dumps(manifest).encode())
    (sealed / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(CaptureError, match=message):
        read_manifest(sealed)


def test_every_flipped_bit_of_a_manifest_is_noticed(sealed):
    seal(sealed, "process", {"command": ["caf\u00e9", "\n"], "seconds": 1.5e300, "interrupted": False})
    whole = (sealed / MANIFEST).read_bytes()
    for bit in range(8 * len(whole)):
        text = bytearray(whole)
        text[bit // 8] ^= 1 << bit % 8
        (sealed / MANIFEST).write_bytes(text)
        with pytest.raises(CaptureError, match=re.escape(f"{sealed / MANIFEST}: ")):
            read_manifest(sealed)
    (sealed / MANIFEST).write_bytes(whole)
    assert read_manifest(sealed).kind == "process"


def test_a_damaged_manifest_is_told_in_one_line_with_the_way_out(sealed):
    text = (sealed / MANIFEST).read_bytes()
    (sealed / MANIFEST).write_bytes(text.replace(b'"true"', b'"tree"'))
    with pytest.raises(CaptureError, match=r"CRC-32 = .*damaged.*take another copy.*--trust"):
        read_manifest(sealed)
    assert read_manifest(sealed, trusted=True).provenance == {"command": "tree"}


@pytest.mark.parametrize("text", [b"", b"\xff\xfe", b"[1]", b'{"format": '])
def test_a_manifest_that_is_no_json_object_is_refused(sealed, text):
    (sealed / MANIFEST).write_bytes(text)
    with pytest.raises(CaptureError):
        read_manifest(sealed)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    (tmp_path / "x").write_bytes(b"old")
    with pytest.raises(RuntimeError), atomic_write(tmp_path / "x") as out:
        out.write(b"new")
        raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_bytes() == b"old"


def test_a_new_capture_appears_whole_and_private(tmp_path):
    with new_capture(tmp_path / "a") as inside:
        (inside / "maps").write_bytes(b"")
        seal(inside, "process", {})
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    assert list(damaged_files(tmp_path / "a", read_manifest(tmp_path / "a"))) == []


def test_an_interrupted_capture_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt), new_capture(tmp_path / "a"):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_capture_is_never_overwritten(sealed):
    with pytest.raises(UsageError, match="never overwritten"), new_capture(sealed):
        pass
    assert read_manifest(sealed).kind == "process"


def test_a_link_to_nothing_is_in_the_way_before_anything_runs(tmp_path):
    (tmp_path / "out").symlink_to(tmp_path / "gone")
    with pytest.raises(UsageError, match="out: exists already"):
        must_be_new(tmp_path / "out")
