"""Whether a process that is stopped for a dump has to stand still until its tables are on the disk."""

from pathlib import Path

from ...core.sizes import size_in_words
from .process import signature

COLLECTED = 4 << 30  # bytes that ptdump collects at most unless told otherwise (dumps/ptdump.c)
FREE = Path("/proc/meminfo")


def long_stop(pid: int, memory: int | None) -> str:
    """A line for whoever is about to stop a process whose tables exceed what ptdump collects in memory; ""
    where they do not, or the process is gone.

    memory  bytes asked for, None: as many as ptdump takes by itself, at most half of what is free
    """
    try:
        tables = signature(Path("/proc") / str(pid))["pgtables_bytes"]
    except (OSError, EOFError):
        return ""
    most = min(memory or COLLECTED, free() // 2)
    if tables <= most:
        return ""
    return (
        f"PID {pid}: its page tables, {size_in_words(tables)}, exceed the {size_in_words(most)} that are "
        "collected in memory: it stands still until they are on the disk. --memory SIZE collects more, "
        "--max-stop MS continues it sooner, without --stop it runs on"
    )


def free() -> int:
    """Bytes that can be had without swapping."""
    [line] = [line for line in FREE.read_text().splitlines() if line.startswith("MemAvailable:")]
    return int(line.split()[1]) * 1024
