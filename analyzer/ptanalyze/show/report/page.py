"""From studies to HTML: the template's values, and a single file."""

import gzip
import hashlib
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from ...analysis.advise import missing
from ...capture.describe import TITLES, for_people
from ...core.errors import printable
from ...core.progress import Progress, __version__
from ..terminal import number
from . import actions, change, compared, deeper, where
from .cautions import alone, cautions, listed, second_sentence
from .glance import captured, glance
from .glossary import glossary, linked, policy_terms
from .grid import Column, Grid, count, grid, word
from .picture import Picture
from .study import Study
from .walkers import walkers


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


def html(page: Page, progress: Progress = None) -> str:
    """The page: the same bytes for the same studies; their contents are text, never markup."""
    chapters = drawn(page.studies, progress)
    own = asset("report.js")
    template = environment().get_template("report.html")
    return str(
        template.render(
            page=page,
            chapters=chapters,
            names=listed([study.name for study in page.studies], 3),
            script=Markup(own),
            library=Markup(library()),
            style=Markup(asset("report.css")),
            script_hash=b64encode(hashlib.sha256(own.encode()).digest()).decode(),
            terms=sorted(glossary().terms, key=lambda term: term.name.lower()),
            policy_terms=[term for term in policy_terms() if used(term.name, page.studies)],
            papers=glossary().papers,
            version=__version__,
        )
    )


def drawn(studies: Sequence[Study], progress: Progress) -> list[Chapter]:
    """A Chapter of each study; drawing takes a second or two for each of its three parts."""
    parts, several = (where, change, deeper), len(studies) > 1
    chapters = []
    for k, study in enumerate(studies):
        pictures = []
        for at, part in enumerate(parts):
            if progress is not None:
                progress(at + len(parts) * k, len(parts) * len(studies), "drawing figures")
            pictures.append(list(part.pictures(study)))
        chapters.append(Chapter(f"c{k}-" if several else "", study, *pictures))
    if progress is not None:
        progress(len(parts) * len(studies), len(parts) * len(studies), "drawing figures")
    return chapters


def environment() -> Environment:
    jinja = Environment(
        loader=PackageLoader("ptanalyze.show.report", "."),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.filters |= {"linked": linked, "listing": listing, "breakable": breakable, "coded": coded}
    jinja.globals |= {
        "titles": TITLES,
        "advice": second_sentence,
        "placement_alone": alone,
        "missing": missing,
        "cautions": cautions,
        "captured": captured,
        "glance": glance,
        "actions": actions,
        "walkers": walkers,
        "where": where,
        "change": change,
        "compared": compared,
    }
    jinja.globals |= {
        "check_grid": check_grid,
        "workload_line": workload_line,
        "notes": notes,
        "made_with": made_with,
    }
    return jinja


def shown(value: Any) -> Any:
    """What the template prints: texts printable, what is markup already as it is."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def check_grid(study: Study) -> Grid:
    columns = {
        "name": Column("Check", "", word),
        "verdict": Column("Verdict", "", word),
        "examined": Column("Looked at", "", count),
        "wrong": Column("Wrong", "", count),
        "reason": Column("Why", "", word),
    }
    return grid("checks", "Checks of the capture", columns, [asdict(finding) for finding in study.findings])


def workload_line(study: Study) -> str:
    return f"The workload is {study.workload}: {'; '.join(study.evidence)}."


def made_with(study: Study) -> dict[str, str]:
    """Versions, the machine of the replay and the placement of threads on it."""
    attrs = study.ranked.attrs
    facts = {what: str(text) for what, text in attrs["provenance"].items()}
    machine = attrs["machine"]
    latencies = [
        f"{kind} DRAM {machine[key]:.0f} ns"
        for kind, key in (("local", "local_ns"), ("remote", "remote_ns"), ("contended", "contended_ns"))
        if machine[key] is not None
    ]
    return {**facts, "machine": f"{machine['name']}: {machine['ghz']:g} GHz, {', '.join(latencies)}"}


def notes(study: Study) -> list[str]:
    return list(study.ranked.attrs["notes"])


def used(policy: str, studies: Sequence[Study]) -> bool:
    names = [name for study in studies for name in (*study.refused, *(row["policy"] for row in study.rows))]
    return any(policy in name.split("+") for name in names)


def listing(rows: Mapping[str, Any], section: str) -> Iterator[tuple[str, str]]:
    """(what, value as text) of the rows of a section of facts."""
    for what, value in for_people({section: dict(rows)})[section].items():
        yield what, value if isinstance(value, str) else number(value)


def breakable(name: str) -> Markup:
    """A name, or a range of addresses, with line breaks allowed after "+", "-", ":", and "." within words."""
    parts = re.split(r"(?<=[+:-])|(?<=\.)(?=[a-z])", printable(name))
    return Markup("<wbr>").join(escape(part) for part in parts)


def coded(text: str) -> Markup:
    """A text whose parts between backticks are code."""
    parts = [escape(part) for part in printable(text).split("`")]
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if k % 2 else part for k, part in enumerate(parts)
    )


def asset(name: str) -> str:
    return files("ptanalyze.show.report").joinpath(name).read_text("utf-8")


def library() -> str:
    """DataTables as bundled by itables, with its notice: gzip, in base64."""
    text = files("itables").joinpath("html", "dt_bundle.js").read_bytes()
    return b64encode(gzip.compress(text, mtime=0)).decode()
