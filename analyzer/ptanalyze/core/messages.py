"""Sentences for people: a line of messages.toml for each code.

Answers are codes and numbers. How a number is written stands beside its name in the file: {share:%},
{size:bytes}, {after:time}; an Interval is a speed-up, "1.22x (1.06-1.42)", or with % a share, "24-30 %".
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any, NamedTuple

from .errors import plural, show_duration, size_in_words
from .interval import Interval, interval, share


class Message(NamedTuple):
    """A code of a section of messages.toml and the numbers of its line, which str() makes."""

    section: str
    code: str
    numbers: Mapping[str, Any]

    def __str__(self) -> str:
        return WRITER.vformat(messages()[self.section][self.code], (), self.numbers)

    def __format__(self, spec: str) -> str:
        return str(self)


def message(section: str, code: str, **numbers: Any) -> Message:
    return Message(section, code, numbers)


def joined(parts: Iterable[Message], between: str = ", ") -> str:
    """Parts of a sentence, those that say something."""
    return between.join(filter(None, map(str, parts)))


@cache
def messages() -> dict[str, dict[str, str]]:
    """{section: {code: line}}"""
    return tomllib.loads(Path(__file__).with_name("messages.toml").read_text("utf-8"))


class Writer(Formatter):
    """Numbers as people read them, by what stands behind their name."""

    def format_field(self, value: Any, spec: str) -> Any:
        if isinstance(value, Interval):
            return share(value) if spec == "%" else interval(value)
        if spec.endswith("%"):
            return f"{100 * value:{spec[:-1] or '.0'}f} %"
        if spec == "bytes":
            return size_in_words(int(value))
        if spec == "time":
            return show_duration(value)
        if spec.startswith("#"):  # {threads:#thread}: "1 thread", "5 threads"
            return plural(int(value), spec[1:])
        return super().format_field(value, spec)


WRITER = Writer()
