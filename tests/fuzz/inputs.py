"""From a seed to an input and the calls of the command line that read it."""

import os
import random
import shutil
from pathlib import Path

import click

from ptanalyze.cli import ptanalyze
from ptanalyze.policies import names as policy_names

from .attempt import command
from .hostile_captures import hostile
from .noise import changed_text
from .readers import read
from .words import OPTIONS, words

ADDRESSES = [0, 0x555555400000, 0x555555401000, 0x555555800000, 0x7FFF00001000, (1 << 47) - 1, 1 << 56]
EDGES = [*ADDRESSES, 1 << 63, (1 << 64) - 1]
HEAVY = 0.2  # the share of captures that are replayed too
NEVER = {"record", "dump", "validate", "completion"}  # they run programs, or read no input
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
        *(["info", c], ["classify", c], ["classify", c, "--weight", r.choice(["4k", "leaf"]), "--by", "vma"]),
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
    local = ["calibrate", "--local", str(place / "local.txt"), "--latency", f]
    calls = {
        "machine": [["machines", f], ["whatif", four, "-p", "mitosis", "-m", f]],
        "costs": [["whatif", four, "-p", "mitosis", "--costs", f]],
        "calibration.toml": [["predict", f], ["whatif", four, "-p", "mitosis", "--calibration", f]],
        "perf-stat": [["calibrate", "--local", f, "-o", f"{o}.toml"], ["predict", "--local", f]],
        "latency": [[*local, "--write-machine", f"{o}.toml"]],
        "matrix": [["topology", "groups", f], ["topology", "groups", f, "--nodes", "2"]],
    }
    if kind.startswith("result"):
        return [["compare", f, str(place / kind)], ["compare", str(place / kind), f, "--json"]]
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
    path, command = r.choice(commands())
    if path == ["report"] and r.random() < 0.95:
        path, command = r.choice(commands())
    arguments = list(path)
    for parameter in command.params:
        arguments += drawn(parameter, r, [*bases, *bases, r.choice(OPTIONS)], path)
    if path == ["synth"]:
        arguments += ["--size", r.choice(SIZES), "--accesses", "1000"]
    os.chdir(place)
    return [arguments]


def commands(group=ptanalyze, path=()):
    """[(path, click command)] of all that reads captures or texts."""
    found = []
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            found += commands(command, (*path, name)) if name not in NEVER else []
        elif name not in NEVER and (*path, name) not in (("topology", "measure"), ("topology", "latency")):
            found.append(([*path, name], command))
    return found


def drawn(parameter, r, captures, path):
    """Words for a parameter, [] for most options, those that take long and those that never end."""
    if isinstance(parameter, click.Argument):
        return [r.choice(captures) for _ in range(max(parameter.nargs, 1))]
    if (
        "plot" in parameter.name
        or parameter.name == "watch"
        or r.random() > (0.9 if parameter.required else 0.2)
    ):
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
