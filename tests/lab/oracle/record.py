"""What a kernel does with scripts, as facts: python -m lab.oracle.record --help (README.md)."""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lab.images import packed

from .machine import NODES, booted
from .scenarios import scenarios, script
from .tables import check

GUEST = Path(__file__).parent / "guest"
OPERATION = re.compile(r"@OP r=(-?\d+) faults=(\d+) ipis=([\d,]+) stats=([\d,]*) \| (.*)")
COUNTS = ["master", "replica", "copied", "copies", "pte_writes", "pte_pages", "ipis_sent", "ipis_saved"]
COUNTS += ["eager"]  # entries copied eagerly; not all kernels count them
LEFT_OUT = ("master", "replica", "copies")
TROUBLE = ("@BAD", "@DIED", "BUG", "Oops", "panic", "WARN")


def initramfs(directory, text):
    """Image with the oracle as /init and its script."""
    root = directory / "root"
    root.mkdir()
    compiler = ["gcc", "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-static", "-pthread"]
    subprocess.run([*compiler, "-o", root / "init", *sorted(GUEST.glob("*.c"))], check=True)
    (root / "script").write_text(text)
    (root / "dev").mkdir()
    return packed(root)


def operation(text):
    """A step of the facts, of the guest's line."""
    result, faults, ipis, counts, line = OPERATION.fullmatch(text).groups()
    step = {"op": line, "faults": int(faults), "ipis": [int(x) for x in ipis.split(",")]}
    if int(result):
        step["result"] = int(result)
    if counts:
        values = dict(zip(COUNTS, map(int, counts.split(",")), strict=False))
        step["counted"] = {name: value for name, value in values.items() if name not in LEFT_OUT}
    return step


class Recorder:
    """Follows the console; steps {scenario: [step]} of those that have ended, trouble: what went wrong."""

    def __init__(self, machine):
        self.machine, self.steps, self.trouble, self.ended = machine, {}, [], set()
        self.now, self.roots, self.child = [], [], []

    def line(self, text):
        word, *rest = text.split() or [""]
        if word == "@BEGIN":
            self.now = self.steps[rest[0]] = []
            with self.machine.stopped() as roots:
                self.roots = roots
        elif word == "@OP":
            self.now.append(operation(text))
        elif word == "@CHECK":
            with self.machine.stopped():
                self.now.append({"check": rest[1], **check(self.machine.ram, self.roots[:NODES])})
        elif word == "@CHILD":
            self.of_child(rest[1], *map(int, rest[2:]))
        elif word == "@END":
            self.ended.add(rest[0])
        elif any(sign in text for sign in TROUBLE):
            self.trouble.append(text)
        if word in ("@BEGIN", "@CHECK", "@CHILD"):
            self.machine.go_on()

    def of_child(self, name, cpu, actor):
        """Actor, a forked process, is on `cpu`, perhaps not running at this moment."""
        root = next((root for root in self.roots_on(cpu) if root not in self.roots), None)
        if root is None:
            raise RuntimeError(f"check {name}: actor {actor} never ran on CPU {cpu}")
        self.child = [*self.child, root] if cpu else [root]
        if cpu == len(self.roots) - 1:
            with self.machine.stopped():
                found = check(self.machine.ram, self.child[:NODES])
            self.now.append({"check": name, "of": [actor], **found})

    def roots_on(self, cpu):
        """Iterate the root in use on a CPU, time and again."""
        for _ in range(200):
            with self.machine.stopped() as roots:
                found = roots[cpu]
            yield found
            time.sleep(0.02)


def written(found):
    """The facts as JSON, a step per line."""
    rows = []
    for scenario in found:
        head = json.dumps({k: v for k, v in scenario.items() if k != "steps"})[:-1]
        steps = ",\n".join("   " + json.dumps(step, separators=(",", ":")) for step in scenario["steps"])
        rows.append(f'  {head}, "steps": [\n{steps}]}}')
    return "[\n" + ",\n".join(rows) + "\n]\n"


def record(kernel, wanted, mode, cpus):
    """(facts of the scenarios that ran to their end, lines of trouble)."""
    with tempfile.TemporaryDirectory() as directory:
        image = initramfs(Path(directory), script(wanted, mode))
        with booted(kernel, image, cpus) as machine:
            recorder = Recorder(machine)
            for text in machine.lines():
                recorder.line(text)
                if text.startswith(("@END", "@BAD", "@DIED")):
                    print(text, file=sys.stderr, flush=True)
    facts = [
        {key: s[key] for key in ("name", "order", "tlbflush_opt")} | {"steps": recorder.steps[s["name"]]}
        for s in wanted
        if s["name"] in recorder.ended
    ]
    return facts, recorder.trouble


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernel", help="bzImage of a kernel with Hydra or Mitosis")
    parser.add_argument("scripts", help="text file of scripts, or facts whose scripts are run again")
    parser.add_argument("out", help="file of facts to write")
    parser.add_argument("--mode", choices=("lazy", "eager", "mitosis"), default="lazy")
    parser.add_argument("--only", default="", help="regular expression of scenarios' names")
    parser.add_argument("--cpus", type=int, default=NODES)
    args = parser.parse_args()
    wanted = [s for s in scenarios(args.scripts) if re.search(args.only, s["name"])]
    facts, trouble = record(args.kernel, wanted, args.mode, args.cpus)
    Path(args.out).write_text(written(facts))
    print(*trouble, f"{len(facts)} of {len(wanted)} scenarios", sep="\n", file=sys.stderr)


if __name__ == "__main__":
    main()
