"""Sample a live process for `record -p`: TLB misses by perf, or accessed bits, by `ptheat`."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

import ptanalyze as pt
from ptanalyze_formats.perf_samples import import_samples, print_samples

from .dump import alive, descendants, dump_process, seal_dump

# ms, about the time that fills caches
LENGTHS = (1, 2, 3, 4, 6, 8, 12, 17, 25, 36, 50, 72, 100, 145, 210, 300)
DAMON, MODULES = Path("/sys/kernel/mm/damon/admin/kdamonds"), Path("/sys/module")
SECONDS_TO_END = 60
REFUSED, NO_SAMPLE = 2, 3  # exit codes of ptheat
NONE_YET = NO_SAMPLE, -signal.SIGINT, -signal.SIGTERM, -signal.SIGHUP  # these before it could take them


def image(process: pt.live.Process) -> list[str]:
    """Where the program that a process runs lies, and its stack: others after exec, [] after its end."""
    try:
        return pt.live.stat_fields(process.proc)[23:26]  # proc(5): startcode on
    except OSError:
        return []


def dump_after(process: pt.live.Process, directory: Path, before: list[str]) -> list[str]:
    """Put the page tables of now into `directory`, unless the process has ended or runs another program than
    `before`, as of image; lines for people."""
    with dumped(directory) as place:
        try:
            lines = dump_process(process.pid, place, bpf=True)
        except (pt.errors.PartialDataError, pt.UsageError):
            with suppress(pt.UsageError):
                pt.live.check_process(process.proc, process.pid)
                if alive(process.pid):  # and no zombie: something else is wrong
                    raise
            return [f"PID {process.pid} has ended: the page tables are those before the samples"]
        if image(process) != before:
            shutil.rmtree(place)
            return [f"PID {process.pid} called exec: the page tables are those before the samples"]
    return lines


@contextmanager
def dumped(directory: Path) -> Iterator[Path]:
    """A new directory for a dump, whose files are then moved to `directory`, snapshot.json last."""
    with tempfile.TemporaryDirectory(prefix=".tables.", dir=directory) as inside:
        yield (place := Path(inside) / "later")
        for path in sorted(place.glob("*"), key=lambda path: path.name == "snapshot.json"):
            os.replace(path, directory / path.name)


def sample_each(
    files: Mapping[int, Path], seconds: int, lengths: Sequence[int], keep: Callable[[], None] = lambda: None
) -> dict[int, list[str] | pt.errors.PartialDataError | pt.UsageError]:
    """Write the samples of processes, {PID: new file}; {PID: lines for people, or why it has no samples}.

    seconds  time to sample. Ctrl-C, SIGTERM and SIGHUP end it: the samples so far are kept. KeyboardInterrupt
             if there are none yet. If we are killed, the sampling ends too.
    lengths  after which tables are read in each sample, ms
    keep     called when all have ended, that no signal ends what follows

    Together the samplers take at most a twentieth of all CPUs (dumps/account.h). UsageError, at once, if one
    is refused a process that is there.
    """
    began, early, names = time.monotonic(), 0.0, {pid: pt.live.called(pid) for pid in files}
    huge = {pid: never_aged(pid) for pid in files}  # it may end
    with ExitStack() as stack:
        account = os.memfd_create("ptanalyze")
        stack.callback(os.close, account)
        os.ftruncate(account, 8)
        ran: dict[int, subprocess.Popen[bytes]] = {}
        try:
            for pid, out in files.items():
                ran[pid] = stack.enter_context(started(pid, out, seconds, lengths, account))
            wait_for_all(ran, seconds)
            keep()
        except (KeyboardInterrupt, subprocess.TimeoutExpired) as stop:
            early = time.monotonic() - began if isinstance(stop, KeyboardInterrupt) else 0.0
            for sampler in ran.values():  # an interrupted wait may keep its lock for ever (CPython 3.11)
                vars(sampler)["_waitpid_lock"] = Lock()
                sampler.send_signal(signal.SIGTERM)
        messages = {pid: sampler.communicate()[1] for pid, sampler in ran.items()}
    lasted = time.monotonic() - began
    for pid in refused(ran):
        raise pt.UsageError(reason(messages[pid]))
    if early and (len(ran) < len(files) or all(one.returncode in NONE_YET for one in ran.values())):
        raise KeyboardInterrupt
    outcomes: dict[int, list[str] | pt.errors.PartialDataError | pt.UsageError] = {}
    for pid, out in files.items():
        if code := ran[pid].returncode:
            outcomes[pid] = (pt.errors.PartialDataError if code in NONE_YET else pt.UsageError)(
                reason(messages[pid])
            )
        else:
            outcomes[pid] = [*sampled(pid, names[pid], out, lasted, huge[pid]), *cut_short(early, seconds)]
    return outcomes


def cut_short(early: float, seconds: int) -> list[str]:
    """Line on sampling that was ended `early`, in seconds since it began; none where that is 0."""
    kept = "what was sampled until then is kept, and its rates are less certain"
    return [f"interrupted after {early:.3g} of {seconds} s: {kept}"] if early else []


def wait_for_all(ran: Mapping[int, subprocess.Popen[bytes]], seconds: int) -> None:
    """Wait for all samplers; TimeoutExpired SECONDS_TO_END after `seconds`. If one is refused, end all."""
    began = time.monotonic()
    pt.options.echo("a busy program is slower meanwhile, in our tests down to half its speed", err=True)
    with pt.terminal.lines_of_progress() as progress:
        while running := [sampler for sampler in ran.values() if sampler.poll() is None]:
            if refused(ran):
                for sampler in running:
                    sampler.send_signal(signal.SIGTERM)
            try:
                running[0].wait(0.5)  # until the next look at all
            except subprocess.TimeoutExpired:
                took = time.monotonic() - began
                if took > seconds + SECONDS_TO_END:
                    raise
                progress(min(int(took), seconds), seconds, "sampling accessed bits")


def refused(ran: Mapping[int, subprocess.Popen[bytes]]) -> list[int]:
    """PIDs of processes that are there, and whose samplers were refused them."""
    return [pid for pid, sampler in ran.items() if sampler.returncode == REFUSED and alive(pid)]


def reason(stderr: bytes) -> str:
    return stderr.decode(errors="replace").strip().removeprefix("ptdump: ") or "ptheat failed"


@contextmanager
def started(
    pid: int, out: Path, seconds: int, lengths: Sequence[int], account: int
) -> Iterator[subprocess.Popen[bytes]]:
    """The ptheat that samples a process into the new file `out`; `account`: descriptor they share."""
    ptheat = str(pt.live.native("ptheat"))
    command = [ptheat, "--account", str(account), str(pid), str(seconds), *map(str, lengths)]
    descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with (
        open(descriptor, "wb") as file,
        subprocess.Popen(
            command, stdout=file, stderr=subprocess.PIPE, preexec_fn=pt.live.die_with_us(), pass_fds=[account]
        ) as ran,
    ):
        yield ran


def sampled(pid: int, whose: str, out: Path, elapsed: float, areas: list[tuple[int, int]]) -> list[str]:
    """Lines on a file of samples, without the pages whose bits the kernel does not clear."""
    uses, cost = leave_out(out, [*areas, *never_aged(pid)]), pt.formats.heat.costs(out)
    lines = [
        f"{pt.errors.plural(int(cost['samples']), 'sample')} of {whose} in {elapsed:.3g} s, "
        f"{cost['seconds']:.3g} s long together: each clears the accessed bits of {cost['tables']:.0f} "
        f"tables, then reads them {cost['readings'] / cost['samples']:.0f} times; per sample "
        f"{pt.errors.about(cost['clear_ms'])} ms to clear, {pt.errors.about(cost['read_ms'])} ms to read"
    ]
    if uses:
        left = pt.errors.plural(uses, "use")
        lines.append(f"{left} of pages of hugetlbfs left out: the kernel does not clear their bits")
    return lines


def never_aged(pid: int) -> list[tuple[int, int]]:
    """[(first byte, one past the last)] of areas of hugetlbfs: clear_refs_walk_ops passes over them."""
    proc = pt.live.shown(pid)
    try:
        used = [
            line.split()
            for line in (proc / "status").read_text(errors="replace").splitlines()
            if "HugetlbPages" in line
        ]
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
    header, form = pt.formats.heat.HEADER_DTYPE.itemsize, pt.formats.heat.RECORD_DTYPE
    records = np.memmap(path, form, "r+", header, (path.stat().st_size - header) // form.itemsize)
    cleared = 0
    for k in np.flatnonzero(records["level"] > 1).tolist():
        page = np.uint64(1) << (np.uint64(3) + np.uint64(9) * records["level"][k])
        at = records["base"][k] + np.arange(512, dtype=np.uint64) * page
        inside = np.any([(at >= start) & (at < end) for start, end in areas], axis=0)
        bits = np.unpackbits(records["word"][k].view(np.uint8), bitorder="little").astype(bool)
        cleared += int(np.count_nonzero(bits & inside))
        records["word"][k] = np.packbits(bits & ~inside, bitorder="little").view(np.uint64)
    records.flush()
    return cleared


def damon() -> dict[str, str]:
    """Provenance of samples taken while DAMON runs, which clears accessed bits too; {} where it does not."""
    states = []
    with suppress(OSError):  # no DAMON, or not ours to read
        files = [*DAMON.glob("[0-9]*/state"), *MODULES.glob("damon_*/parameters/enabled")]
        states = [path.read_text().strip() for path in files]
    said = "DAMON is running: it clears accessed bits too, so uses are missed and rates may be too low"
    return {"also clears accessed bits": said} if {"on", "Y"} & {*states} else {}


def heat_tree(
    pid: int,
    directory: Path,
    seconds: int,
    lengths: Sequence[int] = LENGTHS,
    children: bool = True,
    keep: Callable[[], None] = lambda: None,
) -> list[str]:
    """Write page tables and `heat.bits` of process `pid` into `directory`, of its descendants into pid-PID/
    there, all sampled at the same time and sealed; lines for people.

    Tables are those after the samples, or before them if a process has ended or called exec. Descendants that
    end or call exec before they have a sample, or begin meanwhile, are left out, and lines say so.
    UsageError; PartialDataError if `pid` ended before a sample was complete.
    """
    provenance, family = damon(), [pid, *(descendants(pid) if children else ())]
    lines: list[str] = []
    places = {one: directory if one == pid else directory / f"pid-{one}" for one in family}
    with ExitStack() as stack:
        processes: dict[int, pt.live.Process] = {}
        images: dict[int, list[str]] = {}
        for member, place in places.items():
            place.mkdir(mode=0o700, exist_ok=member == pid)
            try:
                process = stack.enter_context(pt.live.open_process(member))
                images[member] = image(process)
                dump_process(member, place, bpf=True)
                processes[member] = process
            except (pt.errors.PartialDataError, pt.UsageError) as error:
                lines.append(left_out(member, pid, place, error))
        outcomes = sample_each(
            {member: places[member] / pt.formats.heat.FILE for member in processes}, seconds, lengths, keep
        )
        new = [child for child in descendants(pid) if child not in family] if children else []
        for member, outcome in outcomes.items():
            if isinstance(outcome, Exception):
                lines.append(left_out(member, pid, places[member], outcome))
            else:
                lines += [*outcome, *dump_after(processes[member], places[member], images[member])]
    inside = [one for one, outcome in outcomes.items() if one != pid and not isinstance(outcome, Exception)]
    for member in inside:
        seal_dump(places[member], provenance)
    seal_dump(directory, provenance | ({"processes": inside} if children else {}))
    lines += [f"PID {child}: began while others were sampled; left out" for child in new]
    lines += provenance.values()
    return list(dict.fromkeys(lines))


def left_out(member: int, pid: int, place: Path, error: pt.errors.PartialDataError | pt.UsageError) -> str:
    """Remove the files of a descendant that ended or called exec; a line. Other errors are raised."""
    there = alive(member)
    if member == pid or (there and isinstance(error, pt.UsageError)):
        raise error
    shutil.rmtree(place)
    return f"PID {member}: {'called exec' if there else 'ended'} before it was sampled; left out"


# A program that runs already: samples of TLB misses where this CPU has them, else accessed bits.

MISSES = (  # loads and stores that missed every TLB, by Intel's PEBS: Skylake and later, before
    ("mem_inst_retired.stlb_miss_loads:P", "mem_inst_retired.stlb_miss_stores:P"),
    ("mem_uops_retired.stlb_miss_loads:pp", "mem_uops_retired.stlb_miss_stores:pp"),
)


def record_running(
    pid: int,
    out: str | os.PathLike[str],
    seconds: int,
    source: str | None = None,
    children: bool = False,
    misses: Sequence[Sequence[str]] = MISSES,
) -> list[str]:
    """Make the capture directory `out` of process `pid` in `seconds`; lines for people: which source.

    source    "perf": TLB misses; "heat": accessed bits; None: the first that this machine has
    children  its descendants too, by accessed bits
    misses    groups of perf's events that are TLB misses; the first group that this machine counts is taken

    UsageError, PartialDataError if the process ended before a sample was complete.
    """
    pt.live.check_process(Path("/proc") / str(pid), pid)
    if source == "perf" and children:
        raise pt.UsageError("--tracer perf: samples a single process; leave out --follow-fork")
    events: Sequence[str] = ()
    if source != "heat" and not children:
        events = next((group for group in misses if opens(group)), ())
    if source == "perf" and not events:
        raise pt.UsageError("--tracer perf: this machine counts no TLB misses; accessed bits: --tracer heat")
    pt.live.rehearse(pt.live.native("ptdump"))  # which both need
    with pt.live.ends_once() as keep, pt.formats.new_capture(out) as inside:
        pt.options.echo(
            f"sampling PID {pid} for {seconds} s; Ctrl-C ends it and keeps what was sampled so far", err=True
        )
        if not events:
            lines = heat_tree(pid, inside, seconds, children=children, keep=keep)
            return ["accessed bits of page tables: used", *lines]
        with pt.live.open_process(pid) as process:
            lines = sample_misses(process, inside, seconds, events, keep)
        seal_dump(inside)
    return [f"precise samples of TLB misses: used ({', '.join(events)})", *lines]


def opens(events: Sequence[str]) -> bool:
    """Whether perf can sample all of these events here, tried on a program that does nothing."""
    with pt.safe_files.temporary_directory() as place:
        command = ["perf", "record", "-q", "-d", "-e", ",".join(events), "-o", f"{place}/data", "--", "true"]
        try:
            return subprocess.run(command, capture_output=True, check=False).returncode == 0
        except FileNotFoundError:
            return False


def sample_misses(
    process: pt.live.Process, inside: Path, seconds: int, events: Sequence[str], keep: Callable[[], None]
) -> list[str]:
    """Write trace and page tables of a process; lines for people. Signals and `keep` as in sample_each.

    UsageError with perf's last line.
    """
    pid, before = process.pid, image(process)
    dump_process(pid, inside, bpf=True)
    began, early = time.monotonic(), 0.0
    with tempfile.TemporaryDirectory(prefix=".perf.", dir=inside) as place:
        data, whose = Path(place) / "perf.data", pt.live.called(pid)
        sampled = ["-e", ",".join(events), "-d", "--sample-cpu", "-p", str(pid), "-o", str(data)]
        command = ["perf", "record", "-q", *sampled, "--", "sleep", str(seconds)]
        # apart from our group: perf heeds a Ctrl-C also where that is ignored
        how: dict[str, Any] = {"process_group": 0, "preexec_fn": pt.live.die_with_us()}
        with subprocess.Popen(command, stderr=subprocess.PIPE, **how) as ran:
            try:
                said = ran.communicate()[1]
                keep()
            except KeyboardInterrupt:
                early = time.monotonic() - began
                ran.send_signal(signal.SIGINT)
                said = ran.communicate()[1]
        if ran.returncode and not early:
            last = said.decode(errors="replace").strip().splitlines() or ["it said nothing"]
            raise pt.UsageError(f"perf record: {last[-1]}")
        with tempfile.TemporaryFile() as text:
            try:
                print_samples(data, text, pid)
            except (pt.errors.CaptureError, OSError):
                if early:  # before perf had begun
                    raise KeyboardInterrupt from None
                raise
            if not os.fstat(text.fileno()).st_size:
                if early:
                    raise KeyboardInterrupt
                raise pt.errors.PartialDataError(
                    f"PID {pid}: no sample in {seconds} s: idle, or ended; nothing was kept"
                )
            count = import_samples(text, inside / pt.formats.TRACE).accesses
    lines, lasted = dump_after(process, inside, before), f"{early or seconds:.3g} s"
    return [f"{pt.errors.plural(count, 'sample')} of {whose} in {lasted}", *cut_short(early, seconds), *lines]
