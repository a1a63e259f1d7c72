"""A full disk is one line that names what was asked for, and nothing stays: also where files are mapped."""

import os
import subprocess
import sys

import pytest

from needs_root import needs_root
from ptanalyze.core.errors import bundled
from ptanalyze.formats.atomic import atomic_write, map_new
from small_disk import small_disk
from strategies import Page, build_tree, frames_on
from unit.test_ptdump_text import dump_text

SAMPLE = bundled("samples") / "sysbench-memory"
LEAVES = [Page(k << 21, 200 + k) for k in range(64)]  # a leaf table each
PAGE = 4096
DIRECTORIES = 2  # pages that a disk holds besides


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "dump.txt"
    path.write_text(dump_text(build_tree(LEAVES, frames_on([0]))))
    return path


def ran(*words):
    """In a process of its own: what is tested once ended it with SIGBUS."""
    command = [sys.executable, "-m", "ptanalyze", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@needs_root
@pytest.mark.parametrize("what", ["redact", "import", "synth"])
@pytest.mark.parametrize("pages", [4, 35, 50])
def test_a_full_disk_is_said_and_nothing_is_kept(tmp_path, text, what, pages):
    commands = {
        "redact": ("redact", SAMPLE),
        "import": ("import", "vmitosis", text),
        "synth": ("synth", "--size", "64M"),
    }
    with small_disk(tmp_path / "disk", (pages + DIRECTORIES) * PAGE) as disk:
        failed = ran(*commands[what], "-o", disk / "out")
        assert not os.listdir(disk)
    assert failed.returncode == 2, failed
    said = failed.stderr.splitlines()[-1]
    assert said.startswith(f"ptanalyze: {disk}") and ".tmp" not in said
    assert said.endswith("No space left on device; nothing was kept") or "do not fit" in said


@needs_root
def test_a_file_that_does_not_fit_is_named_and_the_old_one_stays(tmp_path):
    with small_disk(tmp_path / "disk", 8 * PAGE) as disk:
        path = disk / "page.html"
        path.write_text("old")
        with pytest.raises(OSError, match="cannot write: No space left") as failed, atomic_write(path) as out:
            out.write(b"new" * 20_000)
        assert failed.value.filename == str(path)
        assert path.read_text() == "old" and len(os.listdir(disk)) == 1


@needs_root
def test_room_is_there_before_a_map_is_written_to(tmp_path):
    with small_disk(tmp_path / "disk", 8 * PAGE) as disk, (disk / "file").open("x+b") as file:
        with pytest.raises(OSError, match="No space left"):
            map_new(file, "<u8", (9, 512))
        assert map_new(file, "<u8", (2, 512), PAGE).sum() == 0
        assert os.fstat(file.fileno()).st_blocks * 512 >= 3 * PAGE
