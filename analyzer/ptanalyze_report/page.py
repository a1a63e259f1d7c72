"""An HTML page about captures, in words, tables and figures: from studies to a single file."""

from __future__ import annotations

import gzip
import hashlib
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from signal import SIG_DFL, signal
from typing import Any, TypeVar, Unpack, cast

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from msgspec.structs import replace

import ptanalyze as pt

from . import figures
from .figures import Column, Grid, Picture, count, grid, word
from .study import Study, cautions, glance, studies

T = TypeVar("T")
HOUR = 3600.0  # seconds: the horizon of `advise`


def report(
    captures: pt.formats.CaptureLike | Sequence[pt.formats.CaptureLike] = None,
    output: pt.formats.PathLike | None = None,
    setup: pt.Setup | None = None,
    *,
    memory: float | str | None = None,
    horizon: float = HOUR,
    policies: pt.analysis.Policies = (),
    **options: Unpack[pt.analysis.Keywords],
) -> str:
    """An HTML page about one or several captures, as text; with `output`, FILE.html, also written there.

    It holds the advice, its cautions, the locality of page walks, effects and costs of each policy, and
    the provenance of the numbers; its tables sort and filter. It is self-contained. Other arguments as in
    `advise`.
    """
    if output is not None:
        pt.formats.must_be_writable(output, "html", "htm")
    several = isinstance(captures, Sequence) and not isinstance(captures, str)
    named = cast("Sequence[pt.formats.CaptureLike]", captures if several else [captures])
    opened = [pt.load(capture) for capture in named]
    asked = pt.analysis.Question(memory=memory, horizon=horizon, policies=policies)
    how = pt.analysis.setup_of(setup, options)
    studied = studies(opened, how, asked)
    given = {key: value for key, value in asked.items() if value not in (None, HOUR, ())}
    again = call(opened, output, {**({"setup": setup} if setup else options), **given})
    text = html(Page(studied, again), how.jobs, how.progress)
    if output is not None:
        write(output, text)
    return text


def call(captures: Sequence[pt.Capture], output: pt.formats.PathLike | None, how: Mapping[str, Any]) -> str:
    """The Python call that makes the page again."""
    shown = [str(capture.directory) for capture in captures]
    parts = [repr(shown[0] if len(shown) == 1 else shown)]
    parts += [repr(str(output))] if output is not None else []
    parts += [f"{key}={getattr(value, 'name', value)!r}" for key, value in how.items() if key != "progress"]
    return f"ptanalyze.report({', '.join(parts)})"


def write(output: pt.formats.PathLike, text: str) -> None:
    """Write the page to a file: whole, 0600."""

    with pt.formats.atomic_write(Path(output), given=True) as file:
        file.write(text.encode())


# Glossary of the page, and the papers behind it; the texts are in glossary.toml.


class Term(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`spellings`: a pattern that matches the term in texts."""

    key: str
    name: str
    meaning: str
    spellings: str


class Paper(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: str
    citation: str
    link: str = ""


class Glossary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    terms: tuple[Term, ...]
    papers: tuple[Paper, ...]


@cache
def glossary() -> Glossary:
    text = files("ptanalyze_report").joinpath("glossary.toml").read_bytes()
    found = msgspec.toml.decode(text, type=Glossary)
    return Glossary(
        tuple(replace(term, meaning=" ".join(term.meaning.split())) for term in found.terms),
        tuple(replace(paper, citation=" ".join(paper.citation.split())) for paper in found.papers),
    )


@cache
def policy_terms() -> list[Term]:
    """A Term per policy."""
    return [
        Term(f"policy-{name}", name, f"{sentence(policy.doc)} Source: {policy.source}.", re.escape(name))
        for name, policy in pt.policies.policies().items()
    ]


def sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def linked(text: str) -> Markup:
    """HTML of a plain text: the first occurrence of each term is a link to the glossary, `words` are code."""
    text = pt.errors.printable(text)
    known = [*policy_terms(), *glossary().terms]
    names = "|".join(f"(?P<t{k}>{term.spellings})" for k, term in enumerate(known))
    seen: set[str] = set()
    parts, at = [], 0
    for match in re.finditer(rf"`(?P<code>[^`]+)`|(?<![\w-])(?:{names})(?![\w-])", text):
        if match["code"]:
            parts += [escape(text[at : match.start()]), Markup("<code>{}</code>").format(match["code"])]
            at = match.end()
            continue
        term = known[int(str(match.lastgroup)[1:])]
        if term.key in seen:
            continue
        seen.add(term.key)
        link = Markup('<a class="term" href="#term-{}">{}</a>').format(term.key, match[0])
        parts += [escape(text[at : match.start()]), link]
        at = match.end()
    return Markup("").join([*parts, escape(text[at:])])


@dataclass(frozen=True)
class Page:
    """`command`: the call that makes the same page again."""

    studies: Sequence[Study]
    command: str


@dataclass(frozen=True)
class Chapter:
    """A study with its pictures drawn; `key` prefixes all its anchors."""

    key: str
    study: Study
    where: Sequence[Picture]
    change: Sequence[Picture]
    deeper: Sequence[Picture]


def html(page: Page, processes: int, progress: pt.process.Progress = None) -> str:
    """The page: the same bytes for the same studies; their contents are text, never markup.

    processes  that draw its figures
    """
    chapters = drawn(page.studies, processes, progress)
    own = asset("report.js")
    template = environment().get_template("report.html")
    return str(
        template.render(
            page=page,
            chapters=chapters,
            names=" and ".join(study.name for study in page.studies),
            script=Markup(own),
            library=Markup(library()),
            style=Markup(asset("report.css")),
            script_hash=b64encode(hashlib.sha256(own.encode()).digest()).decode(),
            terms=sorted(glossary().terms, key=lambda term: term.name.lower()),
            policy_terms=[term for term in policy_terms() if used(term.name, page.studies)],
            papers=glossary().papers,
            version=pt.__version__,
        )
    )


def drawn(studies: Sequence[Study], processes: int, progress: pt.process.Progress) -> list[Chapter]:
    """A Chapter of each study; drawing takes half a second for each picture, side by side in processes."""
    parts, several = (figures.where, figures.change, figures.deeper), len(studies) > 1
    work = [[list(part(study)) for part in parts] for study in studies]
    draws = [draw for study in work for part in study for draw in part]
    if progress is not None:
        progress(0, len(draws), "drawing figures")
    pictures = iter(by_processes(draws, processes))
    chapters = []
    for k, study in enumerate(studies):
        taken = [list(islice(pictures, len(part))) for part in work[k]]
        chapters.append(Chapter(f"c{k}-" if several else "", study, *taken))
    if progress is not None:
        progress(len(draws), len(draws), "drawing figures")
    return chapters


def by_processes(draws: Sequence[Callable[[], T]], processes: int) -> list[T]:
    """What each draw returns, drawn in forked processes: drawing keeps the interpreter busy.

    Where a process dies, the caller draws all.
    """
    if min(processes, len(draws)) > 1:
        DRAWS[:] = draws
        fork = get_context("fork")
        with (
            ProcessPoolExecutor(min(processes, len(draws)), fork, initializer=heed_signals) as pool,
            suppress(BrokenProcessPool),
        ):
            return list(pool.map(draw_inherited, range(len(draws))))
    return [draw() for draw in draws]


DRAWS: list[Callable[[], Any]] = []  # inherited by forked processes, since closures cannot be sent


def draw_inherited(number: int) -> Any:
    return DRAWS[number]()


def heed_signals() -> None:
    """Let Ctrl-C end a forked process at once and in silence."""
    for number in pt.process.ASKED:
        signal(number, SIG_DFL)


def environment() -> Environment:
    jinja = Environment(
        loader=PackageLoader("ptanalyze_report", "."),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.filters |= {"linked": linked, "listing": listing, "breakable": breakable, "coded": coded}
    jinja.globals |= {
        "titles": pt.describe.TITLES,
        "cautions": cautions,
        "glance": glance,
        "figures": figures,
        "check_grid": check_grid,
        "made_with": made_with,
        "refusals": refusals,
    }
    return jinja


def shown(value: Any) -> Any:
    """What the template prints: texts printable, what is markup already as it is."""
    return pt.errors.printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def check_grid(study: Study) -> Grid:
    columns = {
        "name": Column("Check", "", word),
        "verdict": Column("Verdict", "", word),
        "examined": Column("Looked at", "", count),
        "wrong": Column("Wrong", "", count),
        "reason": Column("Why", "", word),
    }
    return grid("checks", "Checks of the capture", columns, [asdict(check) for check in study.checks])


def refusals(study: Study) -> dict[str, str]:
    """{why: names of the policies that the capture does not allow}."""
    reasons = dict.fromkeys(study.refused.values())
    return {why: ", ".join(name for name, one in study.refused.items() if one == why) for why in reasons}


def made_with(study: Study) -> dict[str, str]:
    """Versions, the machine of the replay and the placement of threads on it."""
    attrs = study.frame.attrs
    facts = {what: str(text) for what, text in attrs["provenance"].items()}
    machine = attrs["machine"]
    latencies = [
        f"{kind} DRAM {machine[key]:.0f} ns"
        for kind, key in (("local", "local_ns"), ("remote", "remote_ns"), ("contended", "contended_ns"))
        if machine[key] is not None
    ]
    return {**facts, "machine": f"{machine['name']}: {machine['ghz']:g} GHz, {', '.join(latencies)}"}


def used(policy: str, studies: Sequence[Study]) -> bool:
    names = [name for study in studies for name in (*study.refused, *(row["policy"] for row in study.rows))]
    return any(policy in name.split("+") for name in names)


def listing(rows: Mapping[str, Any], section: str) -> Iterator[tuple[str, str]]:
    """(what, value as text) of the rows of a section of facts."""
    for what, value in pt.describe.for_people({section: dict(rows)})[section].items():
        yield what, value if isinstance(value, str) else pt.terminal.number(value)


def breakable(name: str) -> Markup:
    """A name, or a range of addresses, with line breaks allowed after "+", "-", ":", and "." within words."""
    parts = re.split(r"(?<=[+:-])|(?<=\.)(?=[a-z])", pt.errors.printable(name))
    return Markup("<wbr>").join(escape(part) for part in parts)


def coded(text: str) -> Markup:
    """A text whose parts between backticks are code."""
    parts = [escape(part) for part in pt.errors.printable(text).split("`")]
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if k % 2 else part for k, part in enumerate(parts)
    )


def asset(name: str) -> str:
    return files("ptanalyze_report").joinpath(name).read_text("utf-8")


def library() -> str:
    """DataTables as bundled by itables, with its notice: gzip, in base64."""
    text = files("itables").joinpath("html", "dt_bundle.js").read_bytes()
    return b64encode(gzip.compress(text, mtime=0)).decode()
