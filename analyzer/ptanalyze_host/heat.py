"""Sample which pages of a live process are used: accessed bits, cleared and read again by `ptheat`."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np

from ptanalyze.capture.live.dump import alive, descendants, dump_process, move_files, seal_dump
from ptanalyze.capture.live.native import native
from ptanalyze.capture.live.process import Process, called, check_process, open_process
from ptanalyze.capture.live.supervise import die_with_us
from ptanalyze.core.errors import PartialDataError, UsageError, about
from ptanalyze.core.safe_files import is_own, temporary_directory, unfinished_directory
from ptanalyze.core.sysfs import shown
from ptanalyze.formats.capture import open_capture
from ptanalyze.formats.heat import FILE, HEADER_DTYPE, RECORD_DTYPE, costs, read_heat
from ptanalyze.formats.record import TRACE, new_capture, seal
from ptanalyze.formats.snapshot import read_snapshot
from ptanalyze.formats.trace import add_index
from ptanalyze.world.address_space import known_pages
from ptanalyze_formats.perf_samples import import_perf_script, print_samples

LENGTHS = (
    1,
    2,
    3,
    4,
    6,
    8,
    12,
    17,
    25,
    36,
    50,
    72,
    100,
    145,
    210,
    300,
)  # ms: about the time that fills caches
IDLE = Path("/sys/kernel/mm/page_idle/bitmap")
DAMON = Path("/sys/kernel/mm/damon/admin/kdamonds")
SECONDS_TO_END = 60
REFUSED, NO_SAMPLE = 2, 3  # exit codes of ptheat
LOOK = 0.5  # seconds between two looks at samplers
ACCOUNT_BYTES = 8
AGES = "it clears accessed bits too, so uses are missed and rates may be too low"


def heat_process(pid: int, directory: Path, seconds: int, lengths: Sequence[int] = LENGTHS) -> list[str]:
    """Write page tables of process `pid` and `heat.bits` into `directory`; returns lines for people.

    The tables are those after the samples, or before them if the process has ended or called exec. The caller
    seals the capture. UsageError; PartialDataError if the process ended before a sample was complete.
    """
    with open_process(pid) as process:
        dump_process(pid, directory, bpf=True)
        before = image(process)
        lines = sample(pid, directory / FILE, seconds, lengths)
        return [*lines, *dump_after(process, directory, before)]


def image(process: Process) -> list[str]:
    """Where the program that a process runs lies, and its stack: others after exec, [] after its end."""
    try:
        return (process.proc / "stat").read_text().rpartition(") ")[2].split()[23:26]  # proc(5): startcode on
    except OSError:
        return []


def dump_after(process: Process, directory: Path, before: list[str]) -> list[str]:
    """Put the page tables of now into `directory`, unless the process has ended or runs another program than
    `before`, as of image; lines for people."""
    with tempfile.TemporaryDirectory(prefix=".tables.", dir=directory) as inside:
        try:
            lines = dump_process(process.pid, Path(inside) / "later", bpf=True)
        except (PartialDataError, UsageError):
            with suppress(UsageError):
                check_process(process.proc, process.pid)
                raise  # it is still there: something else is wrong
            return [f"PID {process.pid} has ended: the page tables are those before the samples"]
        if image(process) != before:
            return [f"PID {process.pid} called exec: the page tables are those before the samples"]
        move_files(Path(inside) / "later", directory)
    return lines


def provenance() -> dict[str, str]:
    """What else clears accessed bits on this host while they are sampled, for a capture's manifest."""
    found = damon()
    return {"also clears accessed bits": found} if AGES in found else {}


def sample(pid: int, out: Path, seconds: int, lengths: Sequence[int] = LENGTHS) -> list[str]:
    """Write the samples of `seconds` to the new file `out`; returns lines for people.

    lengths  after which tables are read in each sample, ms. Ctrl-C, SIGTERM and SIGHUP end it: the samples so
    far are kept. KeyboardInterrupt if there is none yet. If we are killed, the sampling ends too.
    """
    found = sample_each({pid: out}, seconds, lengths)[pid]
    if isinstance(found, Exception):
        raise found
    return found


def sample_each(
    files: Mapping[int, Path], seconds: int, lengths: Sequence[int]
) -> dict[int, list[str] | PartialDataError | UsageError]:
    """The same of several processes at a time, {PID: its new file}: lines, or why one has no samples.

    Together they take a twentieth of all CPUs at most (dumps/account.h). UsageError, at once, if one is
    refused a process that is there.
    """
    began, early, names = time.monotonic(), 0.0, {pid: called(pid) for pid in files}
    with ExitStack() as stack:
        account = stack.enter_context(zeros(ACCOUNT_BYTES))
        ran = {
            pid: stack.enter_context(started(pid, out, seconds, lengths, account))
            for pid, out in files.items()
        }
        try:
            wait_for_all(ran, began + seconds + SECONDS_TO_END)
        except (KeyboardInterrupt, subprocess.TimeoutExpired) as stop:
            early = time.monotonic() - began if isinstance(stop, KeyboardInterrupt) else 0.0
            for one in ran.values():
                one.send_signal(signal.SIGTERM)
        said = {pid: one.communicate()[1] for pid, one in ran.items()}
    lasted = time.monotonic() - began
    for pid in refused(ran):
        raise UsageError(reason(said[pid]))
    if early and all(one.returncode == NO_SAMPLE for one in ran.values()):
        raise KeyboardInterrupt
    kept = (
        f"interrupted after {early:.3g} of {seconds} s: what was sampled until then is kept, "
        "and counts less surely"
    )
    found: dict[int, list[str] | PartialDataError | UsageError] = {}
    for pid, out in files.items():
        if code := ran[pid].returncode:
            found[pid] = (PartialDataError if code == NO_SAMPLE else UsageError)(reason(said[pid]))
        else:
            found[pid] = [
                *sampled(names[pid], out, lasted),
                *([kept] if early else []),
                *never_cleared(pid, out),
            ]
    return found


def wait_for_all(ran: Mapping[int, subprocess.Popen[bytes]], until: float) -> None:
    """Until all samplers have ended; TimeoutExpired after time.monotonic() = `until`.

    Where one is refused, the others end, too.
    """
    while running := [one for one in ran.values() if one.poll() is None]:
        if refused(ran):
            for one in running:
                one.send_signal(signal.SIGTERM)
        try:
            running[0].wait(LOOK)
        except subprocess.TimeoutExpired:
            if time.monotonic() > until:
                raise


def refused(ran: Mapping[int, subprocess.Popen[bytes]]) -> list[int]:
    """PIDs of processes that are there, and whose samplers were refused them."""
    return [pid for pid, one in ran.items() if one.returncode == REFUSED and alive(pid)]


def reason(said: bytes) -> str:
    return said.decode(errors="replace").strip().removeprefix("ptdump: ") or "ptheat failed"


@contextmanager
def zeros(size: int) -> Iterator[int]:
    """Descriptor of an in-memory file of `size` bytes."""
    descriptor = os.memfd_create("ptanalyze")
    try:
        os.ftruncate(descriptor, size)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def started(
    pid: int, out: Path, seconds: int, lengths: Sequence[int], account: int
) -> Iterator[subprocess.Popen[bytes]]:
    """The ptheat that samples a process into the new file `out`; `account`: descriptor they share."""
    ptheat = str(native("ptheat"))
    command = [ptheat, "--account", str(account), str(pid), str(seconds), *map(str, lengths)]
    descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with (
        open(descriptor, "wb") as file,
        subprocess.Popen(
            command, stdout=file, stderr=subprocess.PIPE, preexec_fn=die_with_us(), pass_fds=[account]
        ) as ran,
    ):
        yield ran


def sampled(whose: str, out: Path, elapsed: float) -> list[str]:
    """A line on a file of samples; whose: as `called` says."""
    cost = costs(out)
    times = cost["readings"] / cost["samples"]
    return [
        f"{cost['samples']:.0f} samples of {whose} in {elapsed:.3g} s, which cover {cost['seconds']:.3g} s "
        f"of them: accessed bits of {cost['tables']:.0f} tables, read {times:.0f} times each; per sample "
        f"{about(cost['clear_ms'])} ms to clear, {about(cost['read_ms'])} ms to read"
    ]


def never_cleared(pid: int, out: Path) -> list[str]:
    """Leave out what the kernel does not clear; a line if that is something."""
    left_out = leave_out(out, never_aged(pid))
    if not left_out:
        return []
    return [f"{left_out} uses of pages of hugetlbfs left out: the kernel does not clear their bits"]


def never_aged(pid: int) -> list[tuple[int, int]]:
    """[(first byte, one past the last)] of areas of hugetlbfs: clear_refs_walk_ops passes over them."""
    proc = shown(pid)
    try:
        used = [line.split() for line in (proc / "status").read_text().splitlines() if "HugetlbPages" in line]
        if not any(int(words[1]) for words in used):
            return []
        found, area = [], (0, 0)
        for line in (proc / "smaps").read_text(errors="replace").splitlines():
            first, *flags = line.split()
            if "-" in first and not first.endswith(":"):
                start, _, end = first.partition("-")
                area = int(start, 16), int(end, 16)
            elif first == "VmFlags:" and "ht" in flags:
                found.append(area)
        return found
    except OSError:  # it has ended
        return []


def leave_out(path: Path, areas: Sequence[tuple[int, int]]) -> int:
    """Clear the bits of pages in `areas` in a file of samples; returns how many were set."""
    if not areas:
        return 0
    data = np.memmap(path, np.uint8, "r+")
    whole = (len(data) - HEADER_DTYPE.itemsize) // RECORD_DTYPE.itemsize * RECORD_DTYPE.itemsize
    records = data[HEADER_DTYPE.itemsize : HEADER_DTYPE.itemsize + whole].view(RECORD_DTYPE)
    cleared = 0
    for k in np.flatnonzero(records["level"] > 1).tolist():
        page = np.uint64(1) << (np.uint64(3) + np.uint64(9) * records["level"][k])
        at = records["base"][k] + np.arange(512, dtype=np.uint64) * page
        inside = np.any([(at >= start) & (at < end) for start, end in areas], axis=0)
        bits = np.unpackbits(records["word"][k].view(np.uint8), bitorder="little").astype(bool)
        cleared += int(np.count_nonzero(bits & inside))
        records["word"][k] = np.packbits(bits & ~inside, bitorder="little").view(np.uint64)
    data.flush()
    return cleared


def sources() -> dict[str, str]:
    """{source of heat: whether it is used here, and why not}, as probed, the one that is used first."""
    try:
        native("ptheat")
        own = (
            "used"
            if os.access("/proc/self/clear_refs", os.W_OK)
            else "not available: no /proc/PID/clear_refs"
        )
    except UsageError as error:
        own = f"not available: {error}"
    idle = (
        "available, not used: it ages frames, for all processes that map them"
        if IDLE.exists()
        else "not available"
    )
    return {
        "accessed bits of page tables": own,
        "idle page tracking": idle if IDLE.exists() else f"not available: no {IDLE}",
        "DAMON": damon(),
    }


def damon() -> str:
    """What sysfs says of DAMON; nothing is changed, and what may not be read is said to be unknown."""
    try:
        if not DAMON.is_dir():
            return f"not available: no {DAMON}"
        on = [one for one in sorted(DAMON.glob("[0-9]*")) if (one / "state").read_text().strip() == "on"]
    except OSError as error:
        return f"available, not used; whether it runs is not known: {error.filename}: {error.strerror}"
    if not on:
        return "available, not used: it counts regions, not pages"
    return f"available, not used; kdamond {', '.join(one.name for one in on)} is running: {AGES}"


# Samples of accessed bits of a process and its descendants, taken at the same time, in one capture.


def heat_tree(pid: int, directory: Path, seconds: int, lengths: Sequence[int] = LENGTHS) -> list[str]:
    """As heat.heat_process of `pid` into `directory`, of its descendants into pid-PID/ there; all sealed.

    Descendants that end or call exec before they have a sample, or begin meanwhile, are left out, and lines
    say so. Errors for `pid` as of heat_process.
    """
    lines, others, found = [], provenance(), [pid, *descendants(pid)]
    places = {one: directory if one == pid else directory / f"pid-{one}" for one in found}
    with ExitStack() as stack:
        processes: dict[int, Process] = {}
        ran: dict[int, list[str]] = {}
        for one, place in places.items():
            place.mkdir(mode=0o700, exist_ok=one == pid)
            try:
                process = stack.enter_context(open_process(one))
                ran[one] = image(process)
                dump_process(one, place, bpf=True)
                processes[one] = process
            except (PartialDataError, UsageError) as error:
                lines.append(ended(one, pid, place, error))
        said = sample_each({one: places[one] / FILE for one in processes}, seconds, lengths)
        new = [one for one in descendants(pid) if one not in found]
        for one, of in said.items():
            if isinstance(of, Exception):
                lines.append(ended(one, pid, places[one], of))
            else:
                lines += [*of, *dump_after(processes[one], places[one], ran[one])]
    inside = [one for one, of in said.items() if one != pid and not isinstance(of, Exception)]
    for one in inside:
        seal_dump(places[one], others)
    seal_dump(directory, others | {"processes": inside})
    lines += [f"PID {one}: began while others were sampled; left out" for one in new]
    return list(dict.fromkeys(lines))


def ended(one: int, pid: int, place: Path, error: PartialDataError | UsageError) -> str:
    """Remove the files of a descendant that ended or called exec; a line. Other errors are raised."""
    there = alive(one)
    if one == pid or (there and isinstance(error, UsageError)):
        raise error
    shutil.rmtree(place)
    return f"PID {one}: {'called exec' if there else 'ended'} before it was sampled; left out"


# Add samples of accessed bits to a capture of the same process that is there.

LEAST = 0.5  # of the pages that were used must be mapped in the capture


def add_heat(
    pid: int, directory: str | os.PathLike[str], seconds: int, lengths: Sequence[int] = LENGTHS
) -> list[str]:
    """Sample process `pid` for `seconds` into the capture in `directory`, sealed again; lines for people.

    UsageError for a capture with heat, without page tables, of somebody else, or of another process: less
    than half of the used pages mapped in it, or no page seen used, which tells no process from another.
    """
    capture, directory = open_capture(directory), Path(directory)
    if capture.has_heat or not capture.has_snapshot or capture.has_vm or not is_own(directory):
        why = "has heat" if capture.has_heat else "must be your own, of a process, with page tables"
        raise UsageError(f"{directory}: {why}; make a new capture with `ptanalyze heat PID -o DIR`")
    snapshot, others = capture.snapshot, provenance()
    with unfinished_directory(directory, FILE) as inside:
        out = inside / FILE
        lines = sample(pid, out, seconds, lengths)
        heat = read_heat(out)
        known, pages = known_pages(snapshot.guest, heat), len(heat.address)
        if not pages or known < LEAST * pages:
            idle = "" if pages else ", or the process was idle: sample longer (--for)"
            raise UsageError(
                f"{directory}: maps {known} of the {pages} pages that PID {pid} uses: a capture of another "
                f"process, or too old{idle}; make a new one with `ptanalyze heat PID -o DIR`"
            )
        os.replace(out, directory / FILE)
    seal(directory, capture.manifest.kind, capture.manifest.provenance | others)
    return [*lines, f"{known} of the {pages} pages used are mapped in {directory}"]


# Record a program that runs already, by the best samples that this machine has: TLB misses, else heat.

MISSES = (  # loads and stores that missed every TLB, by Intel's PEBS: Skylake and later, before
    ("mem_inst_retired.stlb_miss_loads:P", "mem_inst_retired.stlb_miss_stores:P"),
    ("mem_uops_retired.stlb_miss_loads:pp", "mem_uops_retired.stlb_miss_stores:pp"),
)
MEMORY = ("mem-loads", "ibs_op//")
NO_WALKS = (
    "memory samples: available, not used: few of them are walks, which `ptanalyze import` takes where their "
    "data sources tell; accessed bits are read instead"
)


def record_running(
    pid: int, out: str | os.PathLike[str], seconds: int, misses: Sequence[Sequence[str]] = MISSES
) -> list[str]:
    """Make the capture directory `out` of process `pid` in `seconds`; returns lines for people: which source.

    misses  groups of perf's events that are TLB misses; the first group that this machine counts is sampled.
    Without any: accessed bits (heat.py). UsageError, PartialDataError if the process ended too early.
    """
    events, said = sampled_here(misses)
    with new_capture(out) as inside:
        lines = sample_misses(pid, inside, seconds, events) if events else heat_process(pid, inside, seconds)
        facts = read_snapshot(inside).facts
        seal(inside, "process", {key: facts[key] for key in ("pid", "comm", "time") if key in facts})
    return [*said, *lines]


def sampled_here(misses: Sequence[Sequence[str]] = MISSES) -> tuple[Sequence[str], list[str]]:
    """(events of TLB misses that perf opens here, or none; lines that say what was tried)."""
    for events in misses:
        if opens(events):
            return events, [f"precise samples of TLB misses: used ({', '.join(events)})"]
    tried = ["precise samples of TLB misses: not available: perf opens none of these events here"]
    memory = NO_WALKS if any(opens([event]) for event in MEMORY) else "memory samples: not available"
    return (), [*tried, memory, "accessed bits of page tables (heat): used"]


def opens(events: Sequence[str]) -> bool:
    """Whether perf can sample all of these events here, tried on a program that does nothing."""
    with temporary_directory() as place:
        command = ["perf", "record", "-q", "-d", "-e", ",".join(events), "-o", f"{place}/data", "--", "true"]
        try:
            return subprocess.run(command, capture_output=True, check=False).returncode == 0
        except FileNotFoundError:
            return False


def sample_misses(pid: int, inside: Path, seconds: int, events: Sequence[str]) -> list[str]:
    """Write trace and page tables of a process; lines for people."""
    with tempfile.TemporaryDirectory(prefix=".perf.", dir=inside) as place:
        data, whose = Path(place) / "perf.data", called(pid)
        record_running_sample(pid, data, seconds, events)
        with tempfile.TemporaryFile() as text:
            print_samples(data, text)
            if not os.fstat(text.fileno()).st_size:
                raise PartialDataError(
                    f"PID {pid}: no sample in {seconds} s: idle, or ended; nothing was kept"
                )
            count = import_perf_script(text, inside / TRACE)
    add_index(inside)
    return [f"{count} samples of {whose} in {seconds} s", *dump_process(pid, inside, bpf=True)]


def record_running_sample(pid: int, data: Path, seconds: int, events: Sequence[str]) -> None:
    """Let perf sample a process into the file `data`; UsageError with its last line if it fails."""
    sampled = ["-e", ",".join(events), "-d", "--sample-cpu", "-p", str(pid), "-o", str(data)]
    command = ["perf", "record", "-q", *sampled, "--", "sleep", str(seconds)]
    done = subprocess.run(command, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"]
        raise UsageError(f"perf record: {said[-1]}")
