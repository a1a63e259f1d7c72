"""From a seed to an input and the calls of the command line that read it, with words for options."""

import os
import random
import shutil
from pathlib import Path

import click

from command_line import LEAVES
from ptanalyze.analysis.ranking import memory_limit
from ptanalyze.cli.options import duration, pid, size
from ptanalyze.cli.replay_options import configured, split_names
from ptanalyze.core.errors import UsageError, pair_of
from ptanalyze.core.machine import load_machine, sharing
from ptanalyze.cost.law import placement
from ptanalyze.policies import names as policy_names
from ptanalyze.policies.registry import plan_for
from ptanalyze_host.dump_command import address

from .attempt import command, function
from .changes import changed_text, hostile
from .readers import read

# What people write for options, and the functions that take it in.

OPTIONS = [
    *("0", "1", "-1", "2", "4", "64", "65", "1000", "10000", "1e9", "999999999999", "nan", "inf", "-inf"),
    *("1e308", "1e400", "", " ", "x", "0.5", "1.5", "-0.5", "1%", "101%", "1G", "1T", "1E", "9" * 30 + "T"),
    *("0,0,0,0", "0,1", "0:1", "0:9", "9:0", "0:1000000000", "0:10:0", "0:1@30%", "0:0@0%", "1:0@200%"),
    *("0:99@1s", "0:1@nan%", "0:1@infs", "hydra", "mitosis+hydra", "hydra+hydra", "+", "hydra:"),
    *("prefetch=3", "0x10", "hydra:prefetch=3", "prefetch=-1", "prefetch=x", "=", "a=b=c", "nodes=2,4"),
    *("nodes=0", "delay_ms=nan", "scan_period_ms=0", "by=host", "round-robin", "block", "recorded"),
    *("auto", "bind:0", "bind:99", "interleave", "zipf:0", "zipf:nan", "zipf:1e9", "once:99", "sequential"),
    *("leaf", "4k", "walks", "vma", "thread", "é", "\x1b[31m", "\udcff", "../x", "/dev/null", "/dev/full"),
    *("/", "/nonexistent/x.json", "out.json", "out.svg", "o.toml", "LL", "RRI", "٣", "²", "0x10"),
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


TAKEN = {
    "policy": policies,
    "setting": setting,
    "share": lambda text: sharing(MACHINE, text),
    "memory": lambda text: memory_limit(text, 1 << 30),
    "placement": placement,
    "size": refused(size),
    "duration": refused(duration),
    "pid": refused(pid),
    "address": refused(address),
}
LONGEST = 1 << 17  # of an argument: Linux' MAX_ARG_STRLEN


def words(r):
    """A call of one of these functions with a text, which it may refuse."""
    text = r.choice([*OPTIONS, "0.1:0.5", "LL:0.5,RR:0.5", "64M", "5m"])
    if r.random() < 0.7:
        text = changed_text(text.encode("utf-8", "surrogateescape"), r).decode("utf-8", "surrogateescape")
    name = r.choice(sorted(TAKEN))
    return [function(name, TAKEN[name], text[:LONGEST])]


# From a seed to an input and the calls of the command line that read it.

ADDRESSES = [0, 0x555555400000, 0x555555401000, 0x555555800000, 0x7FFF00001000, (1 << 47) - 1, 1 << 56]
EDGES = [*ADDRESSES, 1 << 63, (1 << 64) - 1]
HEAVY = 0.2  # the share of captures that are replayed too
NEVER = {"record", "dump", "validate"}  # they run programs, or read no input
ASKED = [(name.split(), one) for name, one in LEAVES.items() if name.split()[0] not in NEVER]
POLICIES = [name for name in policy_names() if name != "outside"]
SIZES = ["4M", "64M", "1", "0", "-1", "1E", "nan", "x", "99999999999999T", "4096", "3M"]


def capture(r, bases, place):
    """Calls on a hostile capture in `place`/c."""
    name, target = r.choice(sorted(bases)), place / "c"
    for old in (target, place / "red"):
        shutil.rmtree(old, ignore_errors=True)
    target.mkdir()
    for file, content in hostile(bases[name], list(bases.values()), r).items():
        (target / file).write_bytes(content)
    c = str(target)
    plans = [word for policy in r.sample(POLICIES, 2) for word in ("-p", policy)]
    cheap = [
        *(["info", c], ["classify", c]),
        ["classify", c, "--weight", r.choice(["walks", "leaf"]), "--by", "vma"],
        *(["walk", c, hex(r.choice([*EDGES, r.getrandbits(47)]))], ["fragmentation", c]),
        *(["fragmentation", c, "--after"], ["redact", c, "-o", f"{place}/red"], ["diff", c, c]),
    ]
    heavy = [
        *(["whatif", c, *plans], ["whatif", c, *plans, "--json"], ["timeline", c, *plans]),
        *(["whatif", c, "-p", "hydra", "--autonuma"], ["classify", c, "--weight", "walks", "--by", "thread"]),
        *(["sweep", c, "-p", "hydra", "--set", "prefetch=0,3"], ["advise", c]),
    ]
    return [["check", c], *r.sample(cheap, 2), *([r.choice(heavy)] if r.random() < HEAVY else [])]


def text(r, texts, place):
    """Calls on a hostile text in `place`."""
    kind = r.choice(sorted(texts))
    file, out = place / f"in{Path(kind).suffix or '.toml'}", place / "out"
    shutil.rmtree(out, ignore_errors=True)
    file.write_bytes(changed_text(r.choice(texts[kind]), r))
    f, o, four = str(file), str(out), str(place / "four")
    calls = {
        "machine": [["machines", f], ["whatif", four, "-p", "mitosis", "-m", f]],
        "costs": [["whatif", four, "-p", "mitosis", "--costs", f]],
        "calibration.toml": [["calibrate", f], ["whatif", four, "-p", "mitosis", "--calibration", f]],
        "trial.toml": [["whatif", four, "-p", "mitosis", "--calibration", f]],
        "perf-stat": [["calibrate", "--local", f, "-o", f"{o}.toml"]],
    }
    if kind in calls:
        return calls[kind] if r.random() < 0.3 else calls[kind][:1]
    return [["import", kind, f, "-o", o], ["check", o]]


def pair(r, bases, place):
    """Calls on a VM's host and guest, one of them hostile and mostly not sealed."""
    host, guest, out = (place / name for name in ("h", "g", "j"))
    which = r.choice(["vm-host", "vm-guest"])
    for name, target in (("vm-host", host), ("vm-guest", guest), ("", out)):
        shutil.rmtree(target, ignore_errors=True)
        if name:
            target.mkdir()
            files = hostile(bases[name], list(bases.values()), r) if name == which else bases[name]
            for file, content in files.items():
                if file != "capture.json" or r.random() < 0.5:
                    (target / file).write_bytes(content)
    imported = ["import", "ptdump", str(guest), "-o", str(out)]
    join = ["join", str(host), str(guest), "-o", str(out)]
    return [join if r.random() < 0.7 else imported, ["check", str(out)], ["diff", str(guest), str(out)]]


def options(r, bases, place):
    """A call with arguments and options drawn for a subcommand."""
    path, command = r.choice(ASKED)
    if path == ["report"] and r.random() < 0.95:
        path, command = r.choice(ASKED)
    arguments = list(path)
    for parameter in command.params:
        arguments += drawn(parameter, r, [*bases, *bases, r.choice(OPTIONS)], path)
    if path == ["synth"]:
        arguments += ["--size", r.choice(SIZES), "--accesses", "1000"]
    os.chdir(place)
    return [arguments]


def drawn(parameter, r, captures, path):
    """Words for a parameter, [] for most options and those that take long."""
    if isinstance(parameter, click.Argument):
        return [r.choice(captures) for _ in range(max(parameter.nargs, 1))]
    if "plot" in parameter.name or r.random() > (0.9 if parameter.required else 0.2):
        return []
    option = r.choice(parameter.opts)
    if parameter.is_flag:
        return [option] if option not in ("-h", "--help") else []
    if isinstance(parameter.type, click.Choice) and r.random() < 0.8:
        return [option, str(r.choice(list(parameter.type.choices)))]
    known = "--policy" in parameter.opts and r.random() < 0.8
    return [option, r.choice(["hydra", "mitosis", "thp", "wasp", "bind"] if known else OPTIONS)]


COMMANDS = {"capture": capture, "text": text, "pair": pair, "options": options}
KINDS = {*COMMANDS, "words", "reader"}


def calls(kind, seed, made, place):
    """[Call] of an input, a change of what was `made` (campaign.Made) in `place`, where its files are too."""
    r = random.Random(f"{kind} {seed}")
    if kind == "reader":
        return read(r, made.small, place)
    if kind == "words":
        return words(r)
    base = made.texts if kind == "text" else made.captures
    return [command(arguments) for arguments in COMMANDS[kind](r, base, place)]
