"""Glossary of the page, and the papers behind it; the texts are in glossary.toml."""

import re
from functools import cache
from importlib.resources import files

import msgspec
from markupsafe import Markup, escape
from msgspec.structs import replace

from ...core.errors import printable
from ...policies import policies


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
    text = files("ptanalyze.show.report").joinpath("glossary.toml").read_bytes()
    found = msgspec.toml.decode(text, type=Glossary)
    return Glossary(
        tuple(replace(term, meaning=" ".join(term.meaning.split())) for term in found.terms),
        tuple(replace(paper, citation=" ".join(paper.citation.split())) for paper in found.papers),
    )


@cache
def policy_terms() -> list[Term]:
    """A Term per policy."""
    return [
        Term(
            f"policy-{name}",
            name,
            f"{sentence(policy.doc)} Source: {policy.source}.",
            re.escape(name),
        )
        for name, policy in policies().items()
    ]


def sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def linked(text: str) -> Markup:
    """HTML of a plain text: the first occurrence of each term is a link to the glossary, `words` are code."""
    text = printable(text)
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
