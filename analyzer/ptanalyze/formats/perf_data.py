"""Import perf.data through perf itself, whose `perf script` prints the fields that its samples have."""

import os
import re
import shutil
import struct
import subprocess
import tempfile
from os import PathLike
from pathlib import Path
from typing import IO

from ..core.errors import CaptureError, UsageError
from .perf_script import FIELDS, Samples, import_samples

MAGIC = b"PERFILE2"
HEADER = struct.Struct("<8s6Q")  # magic, size, attr_size, attrs and data as (offset, size)
PIPED = 16
SAMPLE_TYPE = re.compile(r"\bsample_type: ([A-Z0-9_|]+)")
NEEDED = {"TID": "tid", "TIME": "time", "ADDR": "addr"}  # of perf_event_attr.sample_type -> of perf script -F
LOST = re.compile(rb"(?i)truncated|incompatible|corrupt|failed|invalid|error|properly terminated|unexpected")


def import_perf_data(source: str | PathLike[str], out: str | PathLike[str]) -> Samples:
    """Write the samples of a perf.data file to the trace file `out`, as import_samples.

    Errors as print_samples and import_samples.
    """
    with tempfile.TemporaryFile() as text:
        print_samples(source, text)
        return import_samples(text, out)


def print_samples(source: str | PathLike[str], text: IO[bytes]) -> None:
    """Let perf print the samples of a perf.data file into an empty file, which is at its start then.

    UsageError where perf is not installed; CaptureError for what perf cannot read in full, and for samples
    without thread, time or data address. The CPU and the data source are taken where all events have them;
    the period always: perf knows it where all samples of an event have the same.
    """
    perf = shutil.which("perf")
    if perf is None:
        raise UsageError(
            f"{source}: perf.data is read by perf, which is not installed; print it where it is, and import "
            f"that: perf script -F {FIELDS} > samples.txt"
        )
    path = Path(source).absolute()
    must_be_whole(path)
    fields = fields_of(perf, path)
    with tempfile.TemporaryFile() as said:
        command = [perf, "--no-pager", "script", "-i", str(path), "-F", fields]
        code = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=text, stderr=said).returncode
        said.seek(0)
        complaint = next((line for line in said.read().splitlines() if LOST.search(line)), b"")
        if code or complaint:
            why = complaint.decode("utf-8", "replace").strip() or f"perf script ended with {code}"
            raise unreadable(source, why)
    text.seek(0)


def must_be_whole(path: Path) -> None:
    """CaptureError where the samples are cut off, which perf reads in silence.

    perf_file_header of tools/perf/util/header.h; what comes through a pipe has no sizes.
    """
    with path.open("rb") as file:
        head = file.read(HEADER.size)
    if len(head) < PIPED:
        raise CaptureError(path, "size", len(head), f"a perf.data has at least {PIPED} bytes")
    if int.from_bytes(head[8:16], "little") == PIPED:
        return
    *_, begin, length = HEADER.unpack(head.ljust(HEADER.size, b"\0"))
    size = os.path.getsize(path)
    if not length or begin + length > size:
        why = f"its samples end at byte {begin + length}" if length else "perf record was killed as it wrote"
        raise CaptureError(path, "size", size, why)


def fields_of(perf: str, path: Path) -> str:
    """What perf script is asked to print, by the events' sample types."""
    done = subprocess.run(
        [perf, "--no-pager", "evlist", "-v", "-i", str(path)], capture_output=True, text=True
    )
    types = [set(found.split("|")) for found in SAMPLE_TYPE.findall(done.stdout)]
    if done.returncode or not types:
        lines = done.stderr.strip().splitlines()
        raise unreadable(path, lines[0] if lines else "no event in it")
    for kind, field in NEEDED.items():
        if not all(kind in one for one in types):
            how = (
                "record them with `perf record -d`" if kind == "ADDR" else "record them with `perf record -T`"
            )
            raise CaptureError(path, "samples", f"without {field}", how)
    cpu, source = (
        [field] if all(kind in one for one in types) else []
        for kind, field in (("CPU", "cpu"), ("DATA_SRC", "data_src"))
    )
    return ",".join(["tid", *cpu, "time", "period", "event", "addr", *source])


def unreadable(path: str | PathLike[str], why: str) -> CaptureError:
    return CaptureError(path, "perf.data", "cannot be read in full", why)
