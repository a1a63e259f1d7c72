"""What a user may ask of ptdump beyond a dump: how much memory it takes, and what libbpf says."""

import os

import pytest

from native.dumping import ptdump, running
from needs_root import needs_root
from ptanalyze.capture.live.dump import collecting, dump_process
from ptanalyze.cli import run
from ptanalyze.core.errors import UsageError
from ptanalyze.formats.snapshot import read_snapshot

pytestmark = pytest.mark.native


@needs_root
def test_tables_beyond_the_memory_that_is_asked_for_go_straight_to_the_disk(programs, tmp_path, capsys):
    with running(programs / "dump_target", 2) as (process, _):
        asked = ["dump", "process", str(process.pid), "--memory", "1M"]
        assert run([*asked, "-o", str(tmp_path / "some"), "--stop"]) == 0
        said = capsys.readouterr().err.splitlines()[0]
        assert said.startswith(f"PID {process.pid}: its page tables, ") and "exceed the 1.0 MiB" in said
        assert run([*asked, "-o", str(tmp_path / "bounded"), "--stop", "--max-stop", "60000"]) == 0
        assert run([*asked, "-o", str(tmp_path / "live")]) == 0
        assert "exceed" not in capsys.readouterr().err
        dump_process(process.pid, tmp_path / "all", memory=64 << 20)
    assert read_snapshot(tmp_path / "some").facts["streamed"]
    assert not read_snapshot(tmp_path / "all").facts["streamed"]


def test_less_than_a_mib_is_refused_in_a_line(tmp_path):
    with pytest.raises(UsageError, match="memory = 4096 bytes: tables are collected in whole MiB"):
        collecting(4096)
    assert collecting(None) == [] and collecting((3 << 20) + 5) == ["--memory", "3"]


@needs_root
def test_what_libbpf_says_is_shown_where_it_is_asked_for(programs, tmp_path):
    with running(programs / "dump_target", 1) as (process, _):
        quiet = ptdump(process.pid, tmp_path / "quiet")
        loud = ptdump(process.pid, tmp_path / "loud", env={**os.environ, "PTDUMP_BPF_LOG": "1"})
    assert quiet.returncode == loud.returncode == 0
    assert "libbpf:" in loud.stderr and "libbpf:" not in quiet.stderr
