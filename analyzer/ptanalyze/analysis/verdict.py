"""What results mean: the answer to what was asked, what limits the run otherwise, at most one line to type.

A Verdict is codes and numbers; core/messages.toml has their words. Every part of what limits a run is a
speed-up over the same baseline: of local tables and of local data a bound (cost.price), of huge pages their
replay. Without a trace the first is in closed form (analysis.footprint), huge pages give at least what their
reads of leaf entries took, and remote data have no number. ADR 32.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.columns import CACHED, CAREFUL, DATA_NODES, EACH_ONCE, ELSEWHERE, FILLS, MADVISE, NO_RATE, UNSEEN
from ..core.errors import relocation
from ..core.interval import NOTICED, Interval, differs, faster, gains, interval, slower
from ..core.messages import Message, joined, message
from ..policies import BOUND, RESEARCH, availability
from .ranking import best_first, effect, label_of, reshapes, standing, walk_percent
from .workload import Workload

if TYPE_CHECKING:
    from ..core.columns import Finding
    from ..cost.result import Result

TABLES, DATA, PAGES = "tables", "data", "pages"  # of what limits a run
SERVER, PERHAPS, NOTHING, UNKNOWN, SINGLE = "server", "perhaps", "nothing", "unknown", "single"
GAIN, UNSURE, NONE, LOSS, UNTIMED = (
    "gain",
    "unsure",
    "none",
    "loss",
    "untimed",
)  # of a policy that was asked for
HUGE, RESET = "thp", "ept-reset"
POSSIBLE = 1.05  # at the most, below which it is not worth a measurement either
HOST_IS_HUGE = 0.1  # share of 4 KiB mappings, by 2 MiB of the guest, below which the host maps huge pages
PRIVATE = 0.1  # share of leaf tables that several nodes walk through, below which data are private
CROWDED = 0.6  # share of data that one node serves, from which on its bandwidth limits several readers
SEVERAL = 1.5  # nodes of equal shares that read
EVEN = 1.25  # times its equal share, up to which a node serves no more than interleaved data would have it
CAUTIONS = 2  # on a first screen
KNOBS = {  # allocators with a line about huge pages, and what must be allowed for it to do something
    "glibc": ("madvise",),
    "jemalloc": ("madvise",),
    "redis": ("madvise",),
    "java": ("madvise",),
    "anonymous": ("madvise", "never", None),
}


class Answer(NamedTuple):
    """Effect of a policy that was asked for. kind: GAIN, UNSURE, NONE, LOSS, UNTIMED or BOUND."""

    result: Result
    kind: str
    message: Message


class Part(NamedTuple):
    """What is gained without a limit. remote: share of DRAM reads that are remote, None: not known; bytes: of
    memory that it takes; least: whether the gain may be larger than all of its interval."""

    kind: str
    gain: Interval
    remote: float | None = None
    bytes: int = 0
    least: bool = False

    @property
    def noticed(self) -> bool:
        return self.gain.middle >= NOTICED

    @property
    def message(self) -> Message:
        how = "local" if self.remote == 0 else "" if any(map(faster, self.gain)) else "none"
        how = how or ("least" if self.least else "for" if self.bytes > 0 else "gain")
        return message("part", f"{self.kind}-{how}", gain=self.gain, size=self.bytes)


class Verdict(NamedTuple):
    """
    answers   to what was asked, the best first
    parts     what limits the run, the largest first; limit: which it is, None: not known
    notes     of which parts no gain is known, and what is
    action    what to type on mainline Linux, each of whose conditions is known to hold; None: nothing
    research  what research kernels give; None: none was asked for
    cautions  what must be known beside it, the gravest first
    """

    base: Result
    answers: Sequence[Answer]
    parts: Sequence[Part]
    limit: Message | None
    notes: Sequence[Message]
    action: Message | None
    research: Message | None
    cautions: Sequence[Finding]

    @property
    def kind(self) -> str:
        """PAGES, TABLES, DATA, SERVER, PERHAPS, NOTHING, UNKNOWN or SINGLE, a node; "" no run times."""
        return self.limit.code.partition("-")[0] if self.limit else ""

    @property
    def answer(self) -> str:
        """The best of what was asked for, in a sentence."""
        first = next(iter(self.answers), None)
        return str(first.message if first else message("asked", "alone", base=label_of(self.base)))

    @property
    def limits(self) -> list[str]:
        """What limits the run, what is remote in the baseline, and what is not known, in sentences."""
        remote = {part.kind: part.remote for part in self.parts if part.remote is not None}
        basis = [message("limit", "basis", base=label_of(self.base), **remote)] if len(remote) == 2 else []
        notes = [message("limit", "notes", notes=joined(self.notes, "; "))] if self.notes else []
        return [str(line) for line in (self.limit, *(basis if self.kind in PLACED else []), *notes) if line]

    @property
    def today(self) -> list[str]:
        """The line to type and on what it rests; [] nothing."""
        return [] if self.action is None else [str(self.action), str(self.action._replace(section="because"))]

    def record(self) -> dict[str, Any]:
        """For JSON."""
        ends = "low", "middle", "high"
        return {
            "limit": self.kind,
            "sentence": " ".join(self.limits),
            "action": self.action and self.action.code,
            "today": " ".join(self.today[:1]),
            "research": str(self.research or ""),
            "without": {
                part.kind: {**dict(zip(ends, part.gain, strict=True)), "remote": part.remote}
                for part in self.parts
            },
            "unknown": [note.code for note in self.notes],
        }


PLACED = (TABLES, DATA, PAGES)


def verdict(
    results: Sequence[Result],
    about: Workload | None,
    besides: Sequence[Result] = (),
    over: Collection[str] = (),
    notes: Sequence[Message] = (),
) -> Verdict:
    """The Verdict by the Results of the baseline, the first, and of the policies that were asked for.

    about    None: the answers alone
    besides  further Results over the same baseline: they only tell what limits the run
    over     labels of policies beyond the budget: neither an answer nor an action
    notes    Verdict.notes
    """
    base = results[0]
    asked = [result for result in results[1:] if label_of(result) not in over]
    within = [result for result in (*asked, *besides) if result.policy != BOUND]
    within.sort(key=lambda result: standing(result, base))
    answers = [answer(result, base, results) for result in best_first([base, *asked])]
    best = answers[0].result if answers and effect(answers[0].result, base) > 0 else base
    if about is None:
        return Verdict(base, answers, [], None, [], None, None, cautions(base, best))
    huge = next((result for result in within if result.policy == HUGE and result.speedup), None)
    parts, notes = parts_of(base, huge), [*_unmeasured(base), *notes]
    told = answers[:1] if answers and answers[0].result.policy == HUGE else []
    limit = limit_of(base, parts, about, bool(told), UNTOLD in {note.code for note in notes})
    action = _action(base, parts, within, about)
    return Verdict(base, answers, parts, limit, notes, action, _research(base, within), cautions(base, best))


def answer(result: Result, base: Result, results: Sequence[Result] = ()) -> Answer:
    speedup, more = result.speedup, result.peak_bytes - base.peak_bytes
    held = result.held_bytes - base.held_bytes
    size = "held" if more > held > 0 else "more" if more > 0 else "less" if more < 0 else "same"
    when, seconds = result.when_earned, result.break_even_seconds
    back = "unknown" if when is None or seconds is None else when.replace(" ", "-")
    numbers = {
        "policy": label_of(result, results),
        "base": label_of(base, results),
        "gain": speedup,
        "memory": message("memory", size, size=abs(more), held=held),
        "payback": message("payback", back, after=seconds and seconds.middle),
        "fewer": (100 - walk_percent(result, base)) / 100,
    }
    kind = code = _kind(result, base)
    if kind == NONE:
        code = NONE if speedup and any(map(differs, speedup)) else "equal"
    return Answer(result, kind, message("asked", code, **numbers))


def _kind(result: Result, base: Result) -> str:
    speedup = result.speedup
    if speedup is None:
        return UNTIMED if effect(result, base) > 0 else NONE
    if effect(result, base) <= 0:
        return LOSS if slower(speedup.high) else NONE
    return BOUND if result.policy == BOUND else GAIN if gains(speedup) else UNSURE


def parts_of(base: Result, huge: Result | None) -> list[Part]:
    """[Part], the largest first; [] without run times, or where a trace tells nothing of its data."""
    if base.local_tables is None or (base.local_data is None and base.cached_tables is None):
        return []
    parts = [Part(TABLES, base.local_tables, base.remote_tables)] if len(base.classes) > 1 else []
    if base.local_data is not None and parts:
        parts.append(Part(DATA, base.local_data, base.remote_data))
    if huge is not None and huge.speedup is not None:
        parts.append(Part(PAGES, huge.speedup, bytes=huge.peak_bytes - base.peak_bytes))
    elif base.cached_tables is not None and faster(base.cached_tables.middle):
        parts.append(Part(PAGES, base.cached_tables, least=True))
    return sorted(parts, key=lambda part: -part.gain.middle)


def _unmeasured(base: Result) -> list[Message]:
    """Parts that accessed bits tell nothing of."""
    notes: list[Message] = []
    if base.local_tables is None or base.cached_tables is None or base.local_data is not None:
        return []
    if 1 < base.cached_tables.middle < NOTICED:
        notes.append(message("unknown", "beyond", gain=base.cached_tables))
    elif not faster(base.cached_tables.middle):
        share = base.walk_share.high if base.walk_share else 1.0
        spared = share < 1
        most = 1 / (1 - share) if spared else 0.0
        notes.append(message("unknown", "walks-spared" if spared else "walks-uncounted", most=most))
    if len(base.classes) > 1:  # else all data are local
        where = base.finding(DATA_NODES)
        notes.append(message("unknown", "data-by-walks" if where else "data", text=where and where.text))
    return notes


def limit_of(
    base: Result, parts: Sequence[Part], about: Workload, told: bool, untold: bool
) -> Message | None:
    """What limits the run. told: whether huge pages are the answer already; untold: whether what they give is
    not known, so that the rest is no verdict."""
    node, served = _busiest(base)
    if served >= CROWDED and about.spread >= SEVERAL and not about.fits:
        return message("limit", SERVER, node=about.on_host(node)[0], share=served)
    if len(base.classes) == 1 and not any(part.noticed for part in parts):
        return message("limit", SINGLE) if parts or base.local_tables else None
    held = base.finding(CACHED)
    if held and not any(part.noticed for part in parts):
        return message("limit", "nothing-cached", size=1024 * held.numbers["KiB"])
    if not parts:
        return None
    first, most = parts[0], max((part.gain.high for part in parts if not part.least), default=1.0)
    words = joined(part.message for part in parts if not (told and part.kind == PAGES))
    if untold:
        return message("limit", UNKNOWN, parts=words)
    if first.noticed:
        how = "-asked" if told and first.kind == PAGES else "" if faster(first.gain.low) else "-unsure"
        return message("limit", f"{first.kind}{how}", parts=words)
    if most >= POSSIBLE:
        return message("limit", PERHAPS, most=most)
    known = {part.kind for part in parts}
    whose = "" if known == set(PLACED) else "-placed" if DATA in known else "-tables"
    return message("limit", f"{NOTHING}{whose}")


def _busiest(base: Result) -> tuple[int, float]:
    """(the socket that serves most of the data, its share); (0, 0.0) where data were not counted."""
    counted = base.far_data
    if counted is None:
        return 0, 0.0
    served = counted.sum(axis=0) / counted.sum()
    return int(served.argmax()), float(served.max())


def cautions(base: Result, best: Result) -> list[Finding]:
    """What to be careful about: the capture, the best policy, the baseline, the part of a run."""
    seen = [one for one in base.findings if one.code in (ELSEWHERE, *UNSEEN) and one.weight == CAREFUL]
    own = best.careful if best is not base else []
    asked = [one for one in (*base.findings, *best.findings) if one.code == MADVISE]
    once = base.finding(EACH_ONCE) if reshapes(best.policy) else None
    told = [base.finding(NO_RATE), *seen, once, *own, *base.careful, *asked, base.finding(FILLS)]
    return list(dict.fromkeys(filter(None, told)))


# What to type on mainline Linux, where it changes something, fits, costs less than it gains, and is about
# what the program uses.


def _action(base: Result, parts: Sequence[Part], within: Sequence[Result], about: Workload) -> Message | None:
    """The first that is known to gain: on the node that the program fits, from all nodes in place of one, by
    the part that gains most."""
    noticed = [part for part in parts if part.noticed]
    placed = max((part.gain.middle for part in noticed if part.kind != PAGES), default=0.0)
    huge = max((part.gain.middle for part in noticed if _huge(part, about)), default=1.0)
    alone = about.threads > 1 and about.thin is None and about.may_fit_one_node
    if (about.fits or alone) and placed >= huge:
        first, *others = about.on_host(about.node)
        nodes = ",".join(map(str, (first, *others)))
        return message("type", "bind", nodes=nodes, node=first, threads=about.threads)
    crowded = _busiest(base)[1] >= CROWDED and about.spread >= SEVERAL and not about.fits
    actions = [_spread_data(base, about)] if crowded else []
    actions += [_of_part(part, base, within, about) for part in noticed]
    return next(filter(None, actions), None)


def _of_part(part: Part, base: Result, within: Sequence[Result], about: Workload) -> Message | None:
    where = message("where", "guest" if about.vm else "here")
    if part.kind == PAGES:
        return _huge(part, about)
    if part.kind == DATA and not about.thin:
        return _spread_data(base, about)
    if part.kind == TABLES and about.vm is not None:
        reset = next(
            (result for result in within if result.policy == RESET and effect(result, base) > 0), None
        )
        if reset is not None:
            line = availability(RESET, reset.params, reset.host_nodes).line
            return message("type", "reset", line=line, gain=reset.speedup)
    if not about.thin and not (about.thin is None and about.threads == 1):
        return None
    if about.vm is False:
        return message("type", "migrate-vm", node=about.walker)
    if part.kind == DATA:
        return message("type", "migrate", where=where, node=about.walker)
    return message("type", "relocate", where=where, line=relocation())


def _spread_data(base: Result, about: Workload) -> Message | None:
    """Data that several nodes read, from all of them; None where they are private, or there already."""
    node, served = _busiest(base)
    if about.shared <= PRIVATE or served <= EVEN / len(base.classes):
        return None
    where = message("where", "guest" if about.vm else "here")
    start = "./app" if about.vm is not False else "qemu-system-x86_64 ..."
    return message("type", "interleave", where=where, start=start, node=about.on_host(node)[0])


def _huge(part: Part, about: Workload) -> Message | None:
    """Huge pages by what the program allocates with; None where the line is not known to do something, or
    they add more to its memory than they take off its run time, in parts of both."""
    allows = KNOBS.get(about.allocator, ())
    worth = part.least or part.bytes <= (part.gain.middle - 1) * about.memory_bytes
    if part.kind != PAGES or not worth or about.huge_pages not in allows:
        return None
    code = about.allocator
    if about.vm is None:
        return message("type", code, where=message("where", "here"))
    if about.host_small > HOST_IS_HUGE:
        return message("type", "in-both", line=message("type", code, where=message("where", "guest")))
    return message("type", code, where=message("where", "guest"))


def _research(base: Result, within: Sequence[Result]) -> Message | None:
    asked = [result for result in within if availability(result.policy) == RESEARCH]
    best = next((result for result in asked if effect(result, base) > 0 and result.speedup), None)
    if best is None or best.speedup is None:
        return message("research", "none") if asked and base.speedup else None
    written = interval(best.speedup)
    alike = [result for result in asked if result.speedup and interval(result.speedup) == written]
    names = list(dict.fromkeys([label_of(best), *(one.policy for one in alike if "+" not in one.policy)]))
    *first, last = names
    each = f"{', '.join(first)} or {last}" if first else last
    return message("research", "gain", names=each, gain=best.speedup)


UNTOLD = "huge-pages"  # Verdict.notes: what they give is not known of the run that is asked for


def untold(refused: Collection[str], base: Result) -> list[Message]:
    """Verdict.notes of a larger run, by the policies that its capture does not allow."""
    return [message("unknown", UNTOLD)] if HUGE in refused and base.stands_for else []
