"""Boot an emulated machine, wait for its script to finish, try again when the emulation got lost."""

import os
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .images import cache
from .machine import Ram

ROOM = 8 << 30  # free bytes that the sparse files of a machine's memory may need
HISTORY = []  # one line a run, for the summary of the tests
TROUBLE = ("BUG", "Oops", "panic", "stall", "insmod", "Out of memory")


class NotFinished(Exception):
    """The machine did not get through in any of its tries; how each ended."""


@dataclass(frozen=True)
class Run:
    """`share` is the directory that the machine had on /mnt, `log` its console, `ram` its last memory."""

    share: Path
    log: str
    ram: Ram
    tries: int
    seconds: float


@contextmanager
def a_place(name, keep=None):
    """A directory for one machine and its memory: in `keep`, else in RAM if it has room, then gone."""
    if keep:
        yield Path(keep) / name
        return
    in_ram = os.path.isdir("/dev/shm") and shutil.disk_usage("/dev/shm").free > ROOM
    with tempfile.TemporaryDirectory(prefix="lab-", dir="/dev/shm" if in_ram else cache()) as directory:
        yield Path(directory) / "machine"


def boot(name, machine, kernel, initramfs, files, directory, *, limit, tries=1):
    """Run of `machine` in `directory`, with `files` (name -> path or text) in its shared directory.

    It runs the file `script`, which ends by making the file `finished`; a try fails when the machine panics,
    exits without that, or takes longer than `limit` seconds. NotFinished after `tries` of them.
    """
    ends = []
    for count in range(1, tries + 1):
        clear(directory)
        for file, content in files.items():
            put(directory / "share" / file, content)
        started = time.monotonic()
        end = attempt(machine, kernel, initramfs, directory, limit)
        seconds = time.monotonic() - started
        log = (directory / "log").read_text(errors="replace")
        if (directory / "share/finished").exists():
            note(name, f"finished in {seconds:.0f} s, try {count} of {tries}", ends)
            return Run(directory / "share", log, Ram(machine, directory / "ram"), count, seconds)
        ends.append(f"try {count}: {end} after {seconds:.0f} s: {last_words(log)}")
    note(name, f"not finished in {tries} tries", ends)
    raise NotFinished("; ".join(ends))


@contextmanager
def running(machine, kernel, initramfs, files, directory, *, limit, more=()):
    """(QEMU's process, shared directory) of `machine`, which runs until the block ends.

    more  options of QEMU

    NotFinished if its script does not make the file `finished` within `limit` seconds.
    """
    clear(directory)
    for file, content in files.items():
        put(directory / "share" / file, content)
    command = machine.qemu(kernel, initramfs, directory / "share", directory / "ram", directory / "log")
    with open(directory / "qemu", "w") as output:
        process = subprocess.Popen([*command, *more], stdout=output, stderr=output, stdin=subprocess.DEVNULL)
    end = time.monotonic() + limit
    try:
        while not (directory / "share/finished").exists():
            if process.poll() is not None or time.monotonic() > end:
                raise NotFinished(last_words((directory / "log").read_text(errors="replace")))
            time.sleep(0.2)
        yield process, directory / "share"
    finally:
        process.kill()
        process.wait()


def attempt(machine, kernel, initramfs, directory, limit):
    command = machine.qemu(kernel, initramfs, directory / "share", directory / "ram", directory / "log")
    with open(directory / "qemu", "w") as output:
        try:
            subprocess.run(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, timeout=limit)
        except subprocess.TimeoutExpired:
            return "killed"
    return f"ended {(directory / 'qemu').read_text(errors='replace').strip()[-200:]}"


def clear(directory):
    shutil.rmtree(directory, ignore_errors=True)
    for name in ("share", "ram"):
        (directory / name).mkdir(parents=True)
    (directory / "log").touch()


def put(target, content):
    target.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, Path):
        shutil.copy(content, target)
    else:
        target.write_text(content)


def last_words(log):
    lines = [line for line in log.splitlines() if any(word in line for word in TROUBLE)] or log.splitlines()
    return " | ".join(lines[-2:])[-300:]


def note(name, result, ends):
    HISTORY.append("; ".join([f"{name}: {result}", *ends]))
