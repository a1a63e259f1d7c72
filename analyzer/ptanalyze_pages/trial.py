"""Page size as a stopwatch: a running process with 4 KiB and 2 MiB pages in turns."""

import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

import ptanalyze as pt
from ptanalyze_host import sysfs
from ptanalyze_host.dump import alive, descendants
from ptanalyze_host.node_latency import cpu_model

from .blocks import HUGE, SLOTS, Blocks, must_be_made, must_be_root, record_of, state, to_undo, undone
from .far_tables import NODES, begun, in_words, largest, wait
from .figure import Meter, meter_of, must_work, window_of

SETTLE = 0.2  # seconds between a change and its window
CHANGED = 0.01  # of the blocks: a window in which more of them change is thrown away
STILL = 5  # windows without growth, and more than with it, or turns without a huge block: the trial ends
ENDED = 3  # turns without a rate, after some with one: the load has ended
WINDOWS, AGAIN = 60, 3  # in whose time all is measured; at the end, as found again
BUSY = 1.25  # runnable threads per CPU: a fifth of them wait
CPU, ALIKE = 2, 0.1  # of Measured.runs: CPU time of a run of fixed time; what is outside it gains, too
GRACE = 5.0  # seconds that a program has to end, before it is killed
SHORTEST = 50 * 0.02  # CPU seconds that are compared, at least: they begin within a LOOK
TO_FREE = 2e-9  # and for each byte: at the end, giving back small pages takes a 30th of that
LEAST_PAIRS = 6  # before precision counts, or a proposal is made: fewer have no interval of 95 %
BATCHES = 4  # of consecutive windows
FILLED, LOOK = 0.98, 0.02  # of the most resident memory; seconds between two looks at it
STATES = ("found", "contiguous", "huge", "split", "again")
Ratio = tuple[float, float, float]  # low, middle, high


def over(upper: Sequence[float], lower: Sequence[float]) -> Ratio:
    """Ratio of two times of which each was measured in one go, from all ratios of their batches.

    Load drifts, so that neighbouring windows are alike: medians of consecutive ones stand for each, BATCHES
    for the shorter time, as long ones for the other. Of 4 and 4, the whole range of their 16 ratios holds the
    truth in 97 % (Mann and Whitney: 1 - 2 / 70).
    """
    size = -(-min(len(upper), len(lower)) // BATCHES)
    batches = [[np.median(part) for part in np.array_split(x, -(-len(x) // size))] for x in (upper, lower)]
    ratios = np.divide.outer(*batches)
    return float(ratios.min()), float(np.median(upper) / np.median(lower)), float(ratios.max())


def paired(upper: Sequence[float], lower: Sequence[float] | float = 1.0) -> Ratio:
    """Ratio of pairs: their median, and 95 % by the sign test; by Student's t of the logarithms of few, whose
    whole range would hold the truth less often (of three in 75 %)."""
    ratios = np.sort(np.divide(upper, lower))
    pairs, k, tail = len(ratios), 0, 2.0 ** -len(ratios)
    middle, logs = float(np.median(ratios)), np.log(ratios)
    if 1 < pairs < LEAST_PAIRS:
        off = pt.interval.margins((logs.sum() - logs) / (pairs - 1))
        return math.exp(logs.mean() - off), middle, math.exp(logs.mean() + off)
    while 2 * tail < 0.05:
        k += 1
        tail += math.comb(pairs, k) / 2.0**pairs
    k = max(k - 1, 0)
    return float(ratios[k]), middle, float(ratios[-1 - k])


def product(first: Ratio, second: Ratio) -> Ratio:
    """Product of independent ratios: their relative errors are added in quadrature."""
    low, middle, high = np.log([first, second]).T
    down, up = (math.hypot(*(end - middle)) for end in (low, high))
    both = middle.sum()
    return math.exp(both - down), math.exp(both), math.exp(both + up)


class How(NamedTuple):
    """What may be changed, and how long it is measured.

    least      share of a block's pages that are in use, for it to be changed
    memory     bytes that holes may take; pause: seconds between two blocks
    seconds    of a window, 0: window_of; limit: of all, 0: WINDOWS of them; precision: relative range of the
               gain at which it ends before
    say        takes lines for people; run_as: Popen's arguments for a command, as of pt.live.as_typed
    progress   called with (done, total, what)
    """

    least: float = pt.law.PageTrial.FILLED
    memory: int = 256 << 20
    pause: float = 0.0
    seconds: float = 0.0
    limit: float = 0.0
    precision: float = 0.01
    say: Callable[[str], None] = lambda line: None
    run_as: Mapping[str, Any] = MappingProxyType({})
    progress: Callable[[int, int, str], None] = lambda done, total, what: None

    @property
    def window(self) -> float:
        return SETTLE + self.seconds

    def blocks(self, stack: ExitStack, pid: int) -> Blocks:
        return Blocks(stack, pid, self.least, self.memory, self.pause, "trial --pages")


@dataclass
class Measured:
    """Rates of each state, and what was done for them.

    found, contiguous  one after the other: pages as found, then small after a collapse and a split, which
                       leave frames in a row: a VM walks those faster
    huge, split        pairs, in turns; of whole runs: huge and found
    again              as found, after the end
    made               blocks huge after each collapse
    thrown, still      windows in which huge pages came or went; of a load that ended or no growth
    share              {state: share of the resident anonymous memory in huge pages}; resident: its bytes
    runs               seconds of whole runs, as found and with huge pages in turns: in all, since it was
                       stopped for its pages, on CPUs; whole: the last with what making pages huge took
    seconds            that all took; load: of the last minute; ended: why no more was; left: not as found
    span               monotonic seconds: begin and planned end
    """

    figure: str
    rates: Mapping[str, list[float]] = field(default_factory=lambda: {state: [] for state in STATES})
    blocks: Blocks | None = None
    made: list[int] = field(default_factory=list)
    thrown: int = 0
    still: int = 0
    share: dict[str, float] = field(default_factory=dict)
    resident: int = 0
    runs: list[tuple[float, float, float]] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    seconds: float = 0.0
    load: float = 0.0
    ended: str = "nothing was measured"
    left: list[str] = field(default_factory=list)
    span: tuple[float, float] = (0.0, 0.0)

    @property
    def gain(self) -> Ratio | None:
        """Speed with huge pages over that as found. Only neighbouring windows are divided."""
        if self.huge_over_split and self.contiguous:
            return product(self.huge_over_split, self.contiguous)
        huge, found = self.rates["huge"], self.rates["found"]
        return paired(huge, found) if huge and len(huge) == len(found) else None

    @property
    def answer(self) -> Ratio | None:
        """The gain over small pages in turns, with no drift of the load in it; where some pages were huge as
        found, over that."""
        partly = self.share.get("found", 0.0) > pt.law.PageTrial.PARTLY
        return self.gain if partly else self.huge_over_split or self.gain

    @property
    def huge_over_split(self) -> Ratio | None:
        huge, split = self.rates["huge"], self.rates["split"]
        return paired(huge, split) if huge and split else None

    @property
    def contiguous(self) -> Ratio | None:
        """Speed with small pages in contiguous frames over that as found; later ones widen its range, and so
        does `check`: times that are no neighbours differ by as much."""
        contiguous, found = self.rates["contiguous"], self.rates["found"]
        if not (contiguous and found):
            return None
        low, _, high = over([*contiguous, *self.rates["split"]], found)
        drift = self.check or (1.0, 1.0, 1.0)
        return product((low, over(contiguous, found)[1], high), (min(drift[0], 1.0), 1.0, max(drift[2], 1.0)))

    @property
    def check(self) -> Ratio | None:
        """Speed at the end, small pages again, over that of the pairs: 1 but for drift."""
        again, split = self.rates["again"], self.rates["split"]
        return over(again, split) if len(again) >= pt.law.PageTrial.LEAST_PAIRS and split else None

    @property
    def fixed_time(self) -> str:
        """What is not known where runs may end by a clock, however much they have done: all took the same but
        for noise, or their CPU time hardly differs between page sizes. "": they do a fixed work."""
        for k, took in enumerate(zip(*self.runs, strict=True)):
            noise, ratio = pt.law.PageTrial.NOISE, np.median(took[::2]) / np.median(took[1::2])
            if max(took) <= (1 + noise) * min(took) or (k == CPU and abs(np.log(ratio)) < ALIKE):
                return str(pt.columns.message("trial", "fixed", least=min(took), most=max(took)))
        return ""

    def precise(self, precision: float) -> bool:
        low, middle, high = self.answer or (0.0, 0.0, 1.0)
        return len(self.rates["huge"]) >= LEAST_PAIRS and high - low <= precision * middle


def try_pages(pid: int, figure: str | None, how: How) -> Measured:
    """Measure a running process as found, then with huge and split pages in turns; leave it as found."""
    with ExitStack() as stack:
        blocks = how.blocks(stack, pid)
        every = pt.errors.plural(len(blocks.address), "block")
        already = f"{blocks.was_huge.sum():,} of them huge, {blocks.in_row.sum():,} in contiguous frames"
        how.say(f"PID {pid}: {every} of 2 MiB, {already}")
        if record_of(blocks):
            raise pt.UsageError(f"PID {pid}: its pages were changed before; undo that first: {to_undo(pid)}")
        must_work(pid, min(how.seconds or 1.0, 5.0))
        meter = meter_of(stack, pid, figure)
        how = how._replace(seconds=how.seconds or window_of(meter))
        done = Measured(meter.name, blocks=blocks)
        how.say(f"if this is killed (kill -9), undo with: {to_undo(pid)}")
        began = time.monotonic()
        try:
            with undone(blocks) as done.left:
                if windows(blocks, meter, done, how) and not blocks.restore().any():
                    several(blocks, meter, done, "again", how, AGAIN * how.window)
        except (KeyboardInterrupt, pt.errors.PtanalyzeError) as error:
            pairs = pt.errors.plural(len(done.rates["huge"]), "pair")
            if isinstance(error, KeyboardInterrupt):
                raise KeyboardInterrupt(f" after {pairs}; {state(done.left)}") from None
            if not done.huge_over_split or (alive(pid) and not isinstance(error, pt.UsageError)):
                raise
            done.ended = f"{f'{error};' if alive(pid) else 'it ended'} after {pairs}"
        if done.left:
            how.say(state(done.left))
        done.seconds, done.load = time.monotonic() - began, os.getloadavg()[0]
    return done


def window(blocks: Blocks, meter: Meter, done: Measured, state: str, how: How) -> float | None:
    """A rate; None where huge pages came or went meanwhile, or the meter has none."""
    whole, took = (round(at - done.span[0]) for at in (done.span[1], time.monotonic()))
    how.progress(min(took, whole), whole, "measuring page sizes")
    before, _ = blocks.shares()
    time.sleep(SETTLE)
    rate = meter.rate(how.seconds)
    after, done.resident = blocks.shares()
    if rate is None:
        done.still += 1
        return None
    if abs(after - before) > CHANGED * len(blocks.address) * HUGE:
        done.thrown += 1
        return None
    done.share[state] = min(after / max(done.resident, 1), 1.0)
    return rate


def must_grow(done: Measured, seconds: float, most: int) -> None:
    """An error where the meter had no rate in `most` windows or more, and in more than it had one."""
    grew = sum(map(len, done.rates.values()))
    if done.still >= max(most, grew + 1):
        of, error = done.still + grew, pt.errors.PartialDataError if grew else pt.UsageError
        raise error(in_words("no-growth", figure=done.figure, still=done.still, of=of, seconds=seconds))


def several(blocks: Blocks, meter: Meter, done: Measured, state: str, how: How, limit: float) -> None:
    """Windows for `limit` seconds, to half a window; twice as long where none counts."""
    began, rates = time.monotonic(), done.rates[state]
    while time.monotonic() - began < (limit - how.window / 2 if rates else 2 * limit):
        rate = window(blocks, meter, done, state, how)
        rates += [rate] if rate else []
        must_grow(done, how.seconds, STILL)


def windows(blocks: Blocks, meter: Meter, done: Measured, how: How) -> bool:
    """Fill `done`: a sixth of the time as found, a sixth split, then huge and split in turns. Whether the
    load goes on."""
    began, rates = time.monotonic(), done.rates
    takes = blocks.takes(len(blocks.address))
    of_pairs = (LEAST_PAIRS + 3) * takes
    limit, last = how.limit or WINDOWS * how.seconds + of_pairs, AGAIN * how.window
    each = max((limit - of_pairs) / 6, how.window)
    turn, pair = min(takes, limit / 3), 2 * how.window + takes
    first = 2 * (each + how.window + turn)
    whole = max(limit, first + last)
    done.span = began, began + whole
    turned = f"turns {pt.errors.size_in_words(HUGE * len(blocks.address))} huge and small"
    how.say(f"{turned}, done in about {whole:.0f} s; meanwhile {pt.columns.message('trial', 'meanwhile')}")
    end, idle = whole - last - how.window, 0  # half a pair before
    pairs = 1 + int((end - first) / (2 * how.window + turn) + 1)
    longer = 1.5 * ((LEAST_PAIRS - 2) * pair + last + 3 * how.window - takes)  # where `each` is a sixth
    enough = max(longer, last + how.window + LEAST_PAIRS * pair)
    few = f" of {LEAST_PAIRS} that a proposal needs: give --time {enough:.0f}s" * (pairs < LEAST_PAIRS)
    how.say(f"measuring as found, {each:.3g} s; first pair in {first:.0f} s, about {pairs}{few}")
    several(blocks, meter, done, "found", how, each)
    must_grow(done, how.seconds, 1)
    how.say(f"making {pt.errors.plural(len(blocks.address), 'block')} huge, and small again")
    done.made.append(must_be_made(blocks, blocks.collapse(blocks.all(), time.monotonic() + limit / 3)))
    blocks.split(blocks.all())
    how.say(f"measuring small pages in contiguous frames, {each:.3g} s")
    several(blocks, meter, done, "contiguous", how, each)
    done.ended = f"measured for {whole:.3g} s (--time)"
    while time.monotonic() - began < (end if rates["huge"] else 2 * whole):
        refused, still = blocks.refused.copy(), done.still
        done.made.append(blocks.collapse(blocks.all(), time.monotonic() + limit / 3))
        huge = window(blocks, meter, done, "huge", how)
        blocks.split(blocks.all())
        split = window(blocks, meter, done, "split", how)
        if huge and split and 2 * done.made[-1] > max(done.made):  # few are where a fork shares the pages
            rates["huge"].append(huge)
            rates["split"].append(split)
            shown = [f"{float(f'{rate:.4g}'):,.12g}" for rate in (huge, split)]
            shown[0] += f" with {pt.errors.plural(done.made[-1], 'block')} huge"
            how.say(f"pair {len(rates['huge'])}: {shown[0]}, {shown[1]} with small ones ({meter.unit})")
        if done.precise(how.precision):
            done.ended = f"the range is narrow enough (--precision {100 * how.precision:g} %)"
            break
        idle = idle + 1 if done.still == still + 2 else 0
        if idle == ENDED:
            done.ended = f"its load ended after {pt.errors.plural(len(rates['huge']), 'pair')}"
            return False
        if not any(done.made[-STILL:]):
            done.ended = f"no block became huge in {STILL} turns: {', '.join(blocks.refused - refused)}"
            break
    return True


def try_runs(command: Sequence[str], warm_up: float | None, pairs: int, how: How) -> Measured:
    """Run a command to its end in turns, as it is and with huge pages, made after `warm_up` seconds; None:
    when it has the memory of a first run. It stands still meanwhile; CPU times of the rest are compared.
    """
    how.say("COMMAND is run to its end: to try a server that runs, give -p PID")
    most, moment = 0, "it had its memory" if warm_up is None else f"{warm_up:g} s"
    if warm_up is None:
        how.say(f"a run to see how much memory it takes, then {2 * pairs} in turns")
        how.progress(0, 2 * pairs + 1, "runs to the end")
        with ExitStack() as stack:
            program = start(stack, command, 0, how)
            most = grown(program)
        if program.returncode or most < SLOTS:
            failed = f"failed with exit code {program.returncode}" if program.returncode else ""
            raise pt.errors.PartialDataError(f"{command[0]}: {failed or 'ended before it had 2 MiB'}")
    why = f"{pt.errors.plural(pairs, 'pair')} measured (--pairs)"
    done = Measured(f"CPU time after {moment}, if runs do the same work", ended=why)
    began = time.monotonic()
    for turn in range(2 * pairs):
        state = ("found", "huge")[turn % 2]
        how.progress(turn + bool(most), 2 * pairs + bool(most), "runs to the end")
        with ExitStack() as stack:
            started = time.monotonic()
            program = start(stack, command, warm_up or 0, how)
            if most:
                grown(program, FILLED * most)
                wait(program, 0)
            stopped = time.monotonic()
            with standing_still(program.pid) as family:
                blocks, making = how.blocks(stack, largest(program.pid)), time.process_time()
                if state == "huge":
                    done.blocks = blocks
                    done.made.append(must_be_made(blocks, blocks.collapse(blocks.all())))
                making, blocks.longest = time.process_time() - making, 0.0  # nobody waited for a call
                huge, done.resident = blocks.shares()
                done.share[state] = min(huge / max(done.resident, 1), 1.0)
                before = sum(pt.live.cpu_seconds(pid) for pid in family)
            _, status, used = os.wait4(program.pid, 0)
            program.returncode = os.waitstatus_to_exitcode(status)
            if program.returncode:
                raise pt.errors.PartialDataError(f"{command[0]}: failed with exit code {program.returncode}")
            ended, took = time.monotonic(), used.ru_utime + used.ru_stime
            done.runs.append((ended - started, ended - stopped, took))
            done.whole.append(took + making)
            rest = took - before
            largest_of = f" of the largest of {len(family)} processes" * (len(family) > 1)
            pages = "as found" if state == "found" else f"huge pages{largest_of}"
            how.say(f"{pages}: {took:.2f} CPU s, of which {rest:.2f} after {moment}")
            if rest < (least := max(SHORTEST, TO_FREE * done.resident)):
                shorter = "" if warm_up is None else ", or a shorter --warm-up"
                numbers = {"rest": rest, "moment": moment, "least": least, "shorter": shorter}
                raise pt.errors.PartialDataError(in_words("short", command=command[0], **numbers))
            if turn == 0:
                how.say(f"{2 * pairs - 1} more runs, about {(2 * pairs - 1) * (ended - started):.0f} s")
            done.rates[state].append(1 / rest)
    done.seconds = time.monotonic() - began
    return done


def grown(program: "subprocess.Popen[bytes]", enough: float = math.inf) -> int:
    """Most pages that the largest of a program's processes has resident, until they are enough or it ends."""
    most = 0
    while program.poll() is None and most < enough:
        time.sleep(LOOK)
        with suppress(OSError, ValueError, IndexError):
            most = max(most, int((pt.live.shown(largest(program.pid)) / "statm").read_text().split()[1]))
    return most


@contextmanager
def standing_still(pid: int) -> Iterator[list[int]]:
    """A process and its descendants (their PIDs), stopped within the block of code.

    A shell continues them when its standard input ends, which it does however we end, by kill -9, too.
    """
    guard = ["sh", "-c", 'while read -r pid; do all="$pid $all"; done; kill -CONT $all']
    family: list[int] = []
    pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(guard, 0, stdin=pipe, stderr=quiet, start_new_session=True) as shell:
        assert shell.stdin
        while new := [one for one in (pid, *descendants(pid)) if one not in family]:
            for one in new:
                shell.stdin.write(b"%d\n" % one)
                with suppress(ProcessLookupError):
                    os.kill(one, signal.SIGSTOP)
            family += new
        yield family


def end(program: "subprocess.Popen[bytes]") -> None:
    """Ask it and its descendants to end, as what is measured may be a child of a shell; kill who does not."""
    files = list[int]()
    for pid in (program.pid, *descendants(program.pid)) if program.poll() is None else ():
        with suppress(OSError):
            files.append(os.pidfd_open(pid))
    try:
        there, until = send(files, signal.SIGTERM), time.monotonic() + GRACE
        while there and time.monotonic() < until:
            time.sleep(LOOK)
            program.poll()
            there = send(there, 0)
    finally:
        send(files, signal.SIGKILL)
        program.wait()
        for file in files:
            os.close(file)


def send(files: Sequence[int], number: int) -> list[int]:
    """Signal processes; those that were there."""
    there = []
    for file in files:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(file, number)
            there.append(file)
    return there


def start(stack: ExitStack, command: Sequence[str], warm_up: float, how: How) -> "subprocess.Popen[bytes]":
    """A program that has run for `warm_up` seconds; it ends with the stack, and its descendants do."""
    must_be_root()
    program = begun(command, how.run_as)
    stack.callback(end, program)
    if warm_up:
        wait(program, warm_up)
    return program


def record(done: Measured, command: Sequence[str]) -> pt.law.PageTrial:
    """The calibration that -o writes; PartialDataError where nothing was measured, or for a fixed time."""
    blocks, ratios = done.blocks, (done.gain, done.contiguous, done.huge_over_split)
    gain, contiguous, split = (ratio and pt.Interval(*(round(x, 5) for x in ratio)) for ratio in ratios)
    if blocks is None or gain is None:
        raise pt.errors.PartialDataError("trial --pages: nothing was measured, and so nothing is written")
    if done.fixed_time:
        raise pt.errors.PartialDataError(f"what huge pages give is {done.fixed_time}")
    return pt.law.PageTrial(
        program=os.path.basename(" ".join(command).partition(" ")[0]),  # of a title, too: "redis-server *:1"
        command=" ".join(command),
        kernel=os.uname().release,
        cpu=cpu_model() or "unknown",
        date=time.strftime("%Y-%m-%d"),
        nodes=sum(node.memory for node in sysfs.nodes_of(NODES).values()) or 1,
        figure=done.figure,
        gain=gain,
        contiguous=contiguous,
        huge_over_split=split,
        pairs=len(done.rates["huge"]),
        seconds=round(done.seconds, 1),
        blocks=max(done.made),
        resident_bytes=done.resident,
        huge_share_found=round(done.share["found"], 4),
        huge_share_huge=round(done.share["huge"], 4),
        refused=dict(blocks.refused),
        enabled=pt.live.huge_pages() or "",
    )
