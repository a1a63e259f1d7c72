"""What people write for options, and the functions that take it in."""

import click

from ptanalyze.cli.heat import milliseconds
from ptanalyze.cli.options import DURATION, HEXADECIMAL, PID, SIZE, configured, pair_of, split_names
from ptanalyze.core.errors import UsageError, budget
from ptanalyze.core.machine import load_machine, sharing
from ptanalyze.cost.law import placement
from ptanalyze.policies.registry import plan_for

from .attempt import function
from .noise import changed_text

OPTIONS = [
    *("0", "1", "-1", "2", "4", "64", "65", "1000", "10000", "1e9", "999999999999", "nan", "inf", "-inf"),
    *("1e308", "1e400", "", " ", "x", "0.5", "1.5", "-0.5", "1%", "101%", "1G", "1T", "1E", "9" * 30 + "T"),
    *("0,0,0,0", "0,1", "0:1", "0:9", "9:0", "0:1000000000", "0:10:0", "0:1@30%", "0:0@0%", "1:0@200%"),
    *(
        "0:99@1s",
        "0:1@nan%",
        "0:1@infs",
        "hydra",
        "mitosis+hydra",
        "hydra+hydra",
        "+",
        "hydra:",
        "prefetch=3",
    ),
    *(
        "prefetch=3",
        "0x10",
        "hydra:prefetch=3",
        "prefetch=-1",
        "prefetch=x",
        "=",
        "a=b=c",
        "nodes=2,4",
        "nodes=0",
        "delay_ms=nan",
    ),
    *("scan_period_ms=0", "by=host", "main=0,rest=1", "main=9,rest=x", "round-robin", "block", "recorded"),
    *("auto", "bind:0", "bind:99", "interleave", "zipf:0", "zipf:nan", "zipf:1e9", "once:99", "sequential"),
    *("leaf", "4k", "walks", "vma", "thread", "é", "\x1b[31m", "\udcff", "../x", "/dev/null", "/dev/full"),
    *(
        "/",
        "/nonexistent/x.json",
        "out.json",
        "out.parquet",
        "out.svg",
        "o.toml",
        "LL",
        "RRI",
        "٣",
        "²",
        "0x10",
    ),
]
MACHINE = load_machine("vmitosis-cascade-lake")


def policies(text):
    for name, settings in configured(split_names([text]), []):
        plan_for(name, settings)


def setting(text):
    plan_for("hydra", dict([pair_of(text)]))


def refused(take):
    """`take` with click's errors as ours."""

    def taken(text):
        try:
            take(text)
        except click.ClickException as error:
            raise UsageError(error.format_message()) from None

    return taken


def converted(kind):
    return refused(lambda text: kind.convert(text, None, None))


TAKEN = {
    "policy": policies,
    "setting": setting,
    "share": lambda text: sharing(MACHINE, text),
    "memory": lambda text: budget(text, "2%", 1 << 30),
    "updates": lambda text: budget("1M", text, 1 << 30),
    "placement": placement,
    "size": converted(SIZE),
    "duration": converted(DURATION),
    "pid": converted(PID),
    "address": converted(HEXADECIMAL),
    "lengths of samples": refused(milliseconds),
}


LONGEST = 1 << 17  # of an argument: Linux' MAX_ARG_STRLEN


def words(r):
    """A call of one of these functions with a text, which it may refuse."""
    text = r.choice([*OPTIONS, "0.1:0.5", "LL:0.5,RR:0.5", "64M", "5m"])
    if r.random() < 0.7:
        text = changed_text(text.encode("utf-8", "surrogateescape"), r).decode("utf-8", "surrogateescape")
    name = r.choice(sorted(TAKEN))
    return [function(name, TAKEN[name], text[:LONGEST])]
