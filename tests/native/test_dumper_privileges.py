"""ptdump and its guardian may do only what the next step needs, and say which capability is missing."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from native.dumping import PTDUMP, assert_refused, guardian, held, limit_files, ptdump, state, wait_for

pytestmark = pytest.mark.native
KILL, BPF = 5, 39  # include/uapi/linux/capability.h
OUR_OWN = "CapPrm", "CapEff"


def status(pid):
    """{name: words} of /proc/PID/status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: words.strip() for name, _, words in (line.partition(":") for line in lines)}


def held_capabilities(pid):
    """Numbers of the capabilities that a process has, and can get back."""
    words = [int(status(pid)[name], 16) for name in OUR_OWN]
    assert words[0] == words[1] and status(pid)["CapInh"] == "0" * 16 and status(pid)["NoNewPrivs"] == "1"
    return {bit for bit in range(64) if words[0] >> bit & 1}


@pytest.mark.parametrize(("reads", "may"), [("--verify", {KILL, BPF}), ("--pagemap", {KILL})])
def test_while_it_reads_it_may_call_what_it_loaded_and_signal_and_its_guardian_may_only_signal(
    big, tmp_path, reads, may
):
    dumper, _ = held(big, tmp_path, lambda dumper, _: guardian(dumper) and state(big) == "T", reads)
    try:
        guard = guardian(dumper)
        assert held_capabilities(dumper.pid) == may
        assert wait_for(lambda: held_capabilities(guard) == {KILL})
        assert wait_for(lambda: len(os.listdir(f"/proc/{guard}/fd")) == 2), "it begins with its parent's"
    finally:
        dumper.send_signal(signal.SIGCONT)
        dumper.communicate(timeout=60)


def test_when_all_is_read_it_may_do_nothing(big, tmp_path):
    def writes(dumper, at):
        return at.exists() and any(path.stat().st_size for path in at.iterdir())

    dumper, directory = held(big, tmp_path, writes)
    assert held_capabilities(dumper.pid) == set()
    dumper.send_signal(signal.SIGCONT)
    dumper.communicate(timeout=60)
    assert dumper.returncode == 0 and len(os.listdir(directory)) == 4


def test_it_writes_where_only_root_may_until_the_end(target, tmp_path):
    place = tmp_path / "theirs"
    place.mkdir(mode=0o755)
    os.chown(place, 65534, 65534)
    (place / "d").mkdir(mode=0o755)
    os.chown(place / "d", 65534, 65534)
    assert ptdump(target, place / "d").returncode == 0 and len(os.listdir(place / "d")) == 4
    assert ptdump(target, place / "e", preexec_fn=limit_files).returncode == 2 and not (place / "e").exists()


@pytest.mark.parametrize("capability", ["bpf", "perfmon", "sys_ptrace", "sys_admin"])
def test_the_one_missing_capability_is_named(target, tmp_path, capability):
    command = f"exec {PTDUMP} process {target} -o {tmp_path / 'd'}"
    done = subprocess.run(
        ["capsh", f"--drop=cap_{capability}", "--", "-c", command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert_refused(done, 2, f"missing capability CAP_{capability.upper()}")
    assert not (tmp_path / "d").exists()


def test_the_four_capabilities_are_enough(target, tmp_path):
    keep = {"bpf", "perfmon", "sys_ptrace", "sys_admin"}
    listed = subprocess.run(["capsh", "--print"], capture_output=True, text=True, check=True).stdout
    bounding = next(line for line in listed.splitlines() if line.startswith("Bounding set"))
    others = [name for name in bounding.partition("=")[2].split(",") if name and name[4:] not in keep]
    command = f"exec {PTDUMP} process {target} -o {tmp_path / 'd'}"
    done = subprocess.run(
        ["capsh", f"--drop={','.join(others)}", "--", "-c", command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
