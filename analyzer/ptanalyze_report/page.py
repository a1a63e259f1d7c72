"""An HTML page about captures, in words, tables and figures: from studies to a single file."""

from __future__ import annotations

import gzip
import hashlib
import re
import tomllib
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Unpack, cast

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from pandas import DataFrame

import ptanalyze as pt

from . import figures
from .figures import Column, Grid, count, grid
from .study import Study, cautions, glance, studies


def report(
    captures: pt.formats.CaptureLike | Sequence[pt.formats.CaptureLike] = None,
    output: pt.formats.PathLike | None = None,
    setup: pt.Setup | None = None,
    *,
    memory: float | str | None = None,
    horizon: float = 3600.0,
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
    how = pt.analysis.setup_of(setup, options, next(iter(opened), None))
    directories = ", ".join(repr(str(capture.directory)) for capture in opened)
    text = html(studies(opened, how, asked), f"ptanalyze.report([{directories}])", how.progress)
    if output is not None:
        write(output, text)
    return text


def write(output: pt.formats.PathLike, text: str) -> None:
    """Write the page to a file: whole, 0600."""
    with pt.formats.atomic_write(Path(output), given=True) as file:
        file.write(text.encode())


def html(studies: Sequence[Study], command: str, progress: pt.process.Progress = None) -> str:
    """The page: the same bytes for the same studies; their contents are text, never markup.

    command  what makes a page of the same captures again
    """
    chapters = []
    for number, study in enumerate(studies):
        if progress is not None:
            progress(number, len(studies), "drawing figures")
        chapters.append(chapter(study, f"c{number}-" if len(studies) > 1 else ""))
    own = asset("report.js")
    words = tomllib.loads(asset("glossary.toml"))
    terms = [{**term, "meaning": " ".join(term["meaning"].split())} for term in words["terms"]]
    return str(
        environment()
        .get_template("report.html")
        .render(
            command=command,
            chapters=chapters,
            names=" and ".join(study.name for study in studies),
            script=Markup(own),
            library=Markup(library()),
            style=Markup(asset("report.css")),
            script_hash=b64encode(hashlib.sha256(own.encode()).digest()).decode(),
            terms=sorted(terms, key=lambda term: term["name"].lower()),
            policies=pt.policies.policies().items(),
            papers=words["papers"],
            version=pt.__version__,
        )
    )


def chapter(study: Study, key: str) -> dict[str, Any]:
    """The study with its figures drawn; `key` prefixes all its anchors."""
    sections = {
        part.__name__: list(part(study))
        for part in (figures.opening, figures.where, figures.change, figures.deeper)
    }
    return {"study": study, "key": key, **sections}


def environment() -> Environment:
    jinja = Environment(
        loader=PackageLoader("ptanalyze_report", "."),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.filters |= {"listing": listing, "coded": coded, "whole": whole}
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


def coded(text: str) -> Markup:
    """A text whose parts between backticks are code."""
    parts = [whole(part) for part in text.split("`")]
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(part) if k % 2 else part for k, part in enumerate(parts))


def whole(text: str) -> Markup:
    """A text that lines break at its spaces only, not within --options, paths and 1.05-1.40."""
    word = Markup('<span class="word">{}</span>')
    words = pt.errors.printable(text).split(" ")
    return Markup(" ").join(word.format(one) if re.search(r"[-/=]", one) else escape(one) for one in words)


def check_grid(study: Study) -> Grid:
    columns = {
        "name": Column("Check"),
        "verdict": Column("Verdict"),
        "examined": Column("Looked at", "", count),
        "wrong": Column("Wrong", "", count),
        "reason": Column("Why"),
    }
    return grid("checks", "Checks of the capture", columns, DataFrame(study.checks))


def refusals(study: Study) -> dict[str, str]:
    """{why: names of the policies that the capture does not allow}."""
    refused = study.advised.refused
    return {why: ", ".join(n for n, other in refused.items() if other == why) for why in refused.values()}


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


def listing(rows: Mapping[str, Any], section: str) -> Iterator[tuple[str, str]]:
    """(what, value as text) of the rows of a section of facts."""
    for what, value in pt.describe.for_people({section: dict(rows)})[section].items():
        yield what, value if isinstance(value, str) else pt.terminal.number(value)


def asset(name: str) -> str:
    return files("ptanalyze_report").joinpath(name).read_text("utf-8")


def library() -> str:
    """DataTables as bundled by itables, with its notice: gzip, in base64."""
    text = files("itables").joinpath("html", "dt_bundle.js").read_bytes()
    return b64encode(gzip.compress(text, mtime=0)).decode()
