"""ptdump's own memory: what --memory and its control group allow, and what goes to the file instead."""

import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from native.dumping import (
    PROGRAMS,
    PTDUMP,
    REPOSITORY,
    assert_closed,
    running,
    state,
    wait_for,
)
from ptanalyze.formats.snapshot import read_snapshot
from ptanalyze.formats.tables import read_tree

pytestmark = pytest.mark.native
MIB = 1 << 20
GROUPS = Path("/sys/fs/cgroup")


def most_memory(process):
    """Bytes that are a process's own at most, as far as one can see who looks all the time."""
    most = 0
    while process.poll() is None:
        with suppress(OSError, StopIteration, ValueError):
            status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            line = next(line for line in status if line.startswith("RssAnon:"))
            most = max(most, int(line.split()[1]) * 1024)
        time.sleep(0.001)
    return most


def test_two_readings_together_take_no_more_than_asked(programs, tmp_path):
    """32 MiB of tables that change all the time, so that a dump of 40 MiB would be two."""
    taken = {}
    with running(programs / "dump_churn") as (process, _):
        for memory in (1, 40):
            at = tmp_path / f"d{memory}"
            command = [PTDUMP, "process", str(process.pid), "-o", at, "--memory", str(memory), "-q"]
            with subprocess.Popen(command) as dumper:
                taken[memory] = most_memory(dumper)
            assert dumper.returncode == 0
            assert read_snapshot(at).facts["streamed"]
    assert taken[40] - taken[1] < 40 * MIB


@pytest.fixture
def small_group():
    """Directory of a control group that may have 96 MiB."""
    memory = GROUPS / "memory" if (GROUPS / "memory").is_dir() else GROUPS
    place = memory / f"ptanalyze-test-{os.getpid()}"
    limit = "memory.limit_in_bytes" if memory.name == "memory" else "memory.max"
    try:
        place.mkdir()
        (place / limit).write_text(str(96 * MIB))
    except OSError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no control group can be made here: {error}")
    yield place
    place.rmdir()


def test_in_a_small_control_group_tables_go_to_the_file(programs, tmp_path, small_group):
    """128 MiB of tables: without looking at the group's limit, the kernel would kill it."""

    def enter():
        (small_group / "cgroup.procs").write_text(str(os.getpid()))

    with running(programs / "dump_target", 64) as (process, _):
        command = [PTDUMP, "process", str(process.pid), "-o", tmp_path / "d", "--stop", "-q"]
        assert subprocess.run(command, preexec_fn=enter, check=False).returncode == 0
        assert wait_for(lambda: state(process.pid) == "S")
    dump = read_snapshot(tmp_path / "d")
    assert dump.facts["streamed"] and len(dump.guest) > 32_768
    assert_closed(dump.guest)


GROUP_2 = """mount -t tmpfs none /sys/fs/cgroup && cd /sys/fs/cgroup && echo "$1" > memory.max &&
echo $((90 << 20)) > memory.current && shift && cd / && exec "$@" """


@pytest.mark.parametrize(("limit", "streamed"), [(96 * MIB, True), ("max", False)])
def test_limits_are_those_of_control_groups_of_version_2_too(programs, tmp_path, limit, streamed):
    """8 MiB of tables where 6 are left; files stand for the group, so that every machine can show it."""
    with running(programs / "dump_target", 4) as (process, _):
        command = [PTDUMP, "process", process.pid, "-o", tmp_path / "d", "-q"]
        subprocess.run(["unshare", "-m", "sh", "-c", GROUP_2, "sh", *map(str, (limit, *command))], check=True)
    assert read_snapshot(tmp_path / "d").facts["streamed"] is streamed


def test_a_longer_reading_that_was_not_kept_leaves_nothing_in_the_file(programs, tmp_path):
    parts = ("tables", "output")
    objects = [REPOSITORY / f"dumps/build/{part}.o" for part in parts]
    command = [
        "cc",
        f"-I{REPOSITORY / 'dumps'}",
        "-o",
        tmp_path / "two",
        PROGRAMS / "two_readings.c",
        *objects,
    ]
    command.append(REPOSITORY / "dumps/build/topology.o")
    subprocess.run(command, check=True)
    names = [tmp_path / "gpt.tables", tmp_path / "gpt.entries"]
    subprocess.run([tmp_path / "two", *names], check=True)
    assert_closed(read_tree(tmp_path))
    assert names[1].stat().st_size == 4096 + 3 * 4096
