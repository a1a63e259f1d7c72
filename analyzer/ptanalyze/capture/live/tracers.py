"""Command lines that run a program under a tracer, and the check that it can be traced."""

import math
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

from ...core.errors import UsageError
from .locate import BY_WHEEL, first, named, native, packaged

# Choose QEMU's user mode, and the build of the plugin that it takes.

PROGRAM = "qemu-x86_64"


class Qemu(NamedTuple):
    """path    of qemu-x86_64; version: (major, minor)
    plugin  the build of libpt_qemu.so that it takes"""

    path: Path
    version: tuple[int, int]
    plugin: Path


def qemu() -> Qemu:
    """QEMU's user mode with plugins; UsageError that says what is wrong if there is none.

    What PTANALYZE_NATIVE holds is taken or refused. Then comes the PATH's, then that of the package
    ptanalyze_native, as many systems' QEMU takes no plugins.
    """
    own = first(PROGRAM, [place / "qemu" for place in packaged()])
    try:
        return examined(native(PROGRAM))
    except UsageError:
        if own is None or first(PROGRAM, named()):
            raise
        return examined(own)


def examined(path: Path) -> Qemu:
    """A QEMU that can trace; UsageError if it is too old or takes no plugins.

    The interface of plugins begins at version 2 since QEMU 9.0.
    """
    found = re.search(r"version (\d+)\.(\d+)", text := said_by(path, "--version"))
    if not found:
        raise UsageError(f"{path}: --version says {text[:60]!r}, no version of QEMU")
    version = int(found[1]), int(found[2])
    if version < (7, 2):
        old = f"QEMU {version[0]}.{version[1]} is too old"
        raise UsageError(f"{path}: {old}; 7.2 or later can be traced with")
    if "-plugin" not in said_by(path, "--help"):
        raise UsageError(
            f"{path}: this QEMU was built without plugins, as those of Ubuntu 24.04 and Debian 13 are; "
            f"one that has them: {BY_WHEEL}; or build QEMU with --enable-plugins and put it first in PATH"
        )
    return Qemu(path, version, native("libpt_qemu.so" if version < (9, 0) else "libpt_qemu_api2.so"))


def said_by(program: Path, option: str) -> str:
    try:
        return subprocess.run([program, option], capture_output=True, text=True, check=False).stdout
    except OSError as error:
        raise UsageError(f"{program}: cannot be run: {error.strerror}") from None


X86_64 = 62  # e_machine of ELF files

Pairs: TypeAlias = Sequence[tuple[str, object]]  # the tracer's own options


@dataclass(frozen=True)
class Options:
    """Options of tracing. Region of interest: from the entry of `start_symbol`, or PTT_ROI_BEGIN, or
    after `start_access` accesses; to the entry of `end_symbol`, or PTT_ROI_END, or for `accesses` accesses.
    max_bytes  size limit of the trace file, 0 none; seconds  of the traced run after which the region
    ends, 0 none; strip  leave out touches that change no TLB"""

    start_symbol: str = ""
    end_symbol: str = ""
    marker: bool = False
    start_access: int = 0
    accesses: int = 0
    follow_fork: bool = False
    max_bytes: int = 0
    seconds: float = 0
    strip: bool = True

    @property
    def marked(self) -> bool:
        """Whether a region is named that begins or ends with something the program does."""
        begins = self.start_symbol or self.marker or self.start_access
        return bool(begins or self.end_symbol or self.accesses or self.seconds)

    @property
    def ends_once(self) -> bool:
        """Whether the region has an end of its own, after which it does not begin again."""
        return bool(self.seconds or self.accesses or self.end_symbol) and not self.marker

    @property
    def begins(self) -> str:
        """What the region waits for, in words; "" where it begins with the program."""
        if self.start_symbol:
            return f"{self.start_symbol}()"
        if self.marker:
            return "PTT_ROI_BEGIN()"
        return f"access {self.start_access:,}" if self.start_access else ""

    def items(self) -> Iterator[tuple[str, object]]:
        """The tracer's own options, "key=value", those that are not at their default."""
        named = {
            "roi_start_symbol": self.start_symbol,
            "roi_end_symbol": self.end_symbol,
            "roi_marker": self.marker,
            "roi_start_access": self.start_access,
            "roi_accesses": self.accesses,
            "follow_fork": self.follow_fork,
            "max_bytes": self.max_bytes,
            "for_ms": math.ceil(self.seconds * 1000),
            "instructions": True,
        }
        for key, value in named.items():
            if isinstance(value, int) and value < 0:
                raise UsageError(f"{key} = {value}: expected a number from 0 on")
            if value:
                yield key, "on" if value is True else value
        if not self.strip:
            yield "strip", "off"


def find_program(command: Sequence[str]) -> str:
    """Path of the command's program; UsageError unless it is a 64-bit x86-64 executable."""
    name = command[0]
    path = shutil.which(name)
    if not path:
        raise UsageError(f"{name}: no such {'option' if name[:1] == '-' else 'program, or not executable'}")
    try:
        with open(path, "rb") as file:
            head = file.read(64)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; the tracer must be able to read it") from None
    if head[:2] == b"#!":
        words = head.split(b"\n")[0][2:].decode(errors="replace").strip().removeprefix("/usr/bin/env ")
        raise UsageError(
            f"{path}: a script; begin the command with its interpreter: {words} {path} ...; or, if it only "
            "starts another program, with that program"
        )
    if head[:4] != b"\x7fELF" or len(head) < 20:
        raise UsageError(f"{path}: not an ELF executable; only x86-64 Linux programs can be traced")
    machine = struct.unpack_from("<H", head, 18)[0]
    if head[4] != 2 or machine != X86_64:
        bits = 64 if head[4] == 2 else 32
        why = f"a {bits}-bit program for ELF machine {machine}; only 64-bit x86-64 programs can be traced"
        raise UsageError(f"{path}: {why}")
    return path


def qemu_command(program: str, command: Sequence[str], options: Pairs) -> list[str]:
    """argv of `command` under QEMU's user mode; options: (key, value) pairs for the plugin."""
    found = qemu()
    given = [*options, ("program", program)]
    values = [f"{key}={value}".replace(",", ",,") for key, value in given]
    plugin = ",".join([str(found.plugin).replace(",", ",,"), *values])
    return [str(found.path), "-0", command[0], "-plugin", plugin, program, *command[1:]]


def pin_command(program: str, command: Sequence[str], options: Pairs) -> list[str]:
    """argv of `command` under Intel Pin."""
    flat = [word for key, value in options for word in (f"-{key}", str(value))]
    return [str(native("pin")), "-t", str(native("pin_tool.so")), *flat, "--", program, *command[1:]]


TRACERS = {"qemu": qemu_command, "pin": pin_command}


def tools(tracer: str) -> list[Path]:
    """Files of a tracer that whoever runs under it must be able to read."""
    if tracer == "pin":
        return [native("pin"), native("pin_tool.so")]
    found = qemu()
    return [found.path, found.plugin]
