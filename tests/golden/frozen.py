"""The numbers of every answer, frozen: `make golden` compares them, `make golden WRITE=1` stores them.

An answer is a command's `--json`. Hashed are its values in order: numbers, booleans and single words. Keys,
prose and provenance are left out: a renamed column or a better sentence moves nothing, another number does.
`KEEP=DIR` writes each answer's values to a file, to be compared line by line.
"""

import hashlib
import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from click.testing import CliRunner

from ptanalyze.cli import ptanalyze as program

STORED = Path(__file__).with_name("frozen.json")
PROSE = {"provenance", "notes", "findings", "assumptions", "units", "note", "title", "what", "text"}
CAPTURES = ("lookup", "sysbench-memory", "vm-numa-visible", "vm-numa-oblivious")
SYNTHETIC = {
    "native": "--size 64M --nodes 4 --threads 4 --accesses 60000",
    "zipf": "--size 64M --nodes 2 --threads 2 --pattern zipf:1.0 --accesses 60000",
    "visible": "--size 64M --nodes 4 --threads 4 --guest visible --accesses 60000",
    "oblivious": "--size 64M --nodes 4 --threads 4 --guest oblivious --accesses 60000",
}
NATIVE = "-p linux,first-touch,interleave,mitosis,hydra,vmitosis-migrate,wasp,thp"
NESTED = "-p linux,vmitosis-migrate,vmitosis-replicate,ptemagnet,thp,shadow,ideal"
OBLIVIOUS = NESTED.replace("replicate", "replicate:mode=no-p")
QUESTIONS = (
    "whatif {} {policies}",
    "whatif {} {policies} --cold",
    "whatif {} {policies} --weight leaf",
    "classify {}",
    "advise {}",
    "timeline {} -p linux",
    "check {}",
)
OF_NATIVE = ("sweep {} -p hydra --set prefetch=0,9 --set latency_ratio=2,4",)
ELSEWHERE = ("validate --quick --paper hydra", "predict --statistics", "machines", "policies")


def questions(made: Path) -> dict[str, list[str]]:
    """{name in the store: arguments}; synthetic captures lie in `made`."""
    asked = {line: line.split() for line in ELSEWHERE}
    for name in (*CAPTURES, *SYNTHETIC):
        where = name if name in CAPTURES else str(made / name)
        native = not name.endswith(("visible", "oblivious"))
        policies = NATIVE if native else OBLIVIOUS if name.endswith("oblivious") else NESTED
        for form in (*QUESTIONS, *(OF_NATIVE if native else ())):
            asked[form.format(name, policies=policies)] = form.format(where, policies=policies).split()
    return asked


def values(answer) -> list[str]:
    """Values of a JSON answer, in order, without prose."""
    if isinstance(answer, dict):
        return [x for key, part in answer.items() if key not in PROSE for x in values(part)]
    if isinstance(answer, list):
        return [x for part in answer for x in values(part)]
    if answer is None or (isinstance(answer, str) and (" " in answer or "/" in answer)):
        return []
    return [repr(answer)]


def answered(args: list[str]) -> list[str]:
    ran = CliRunner().invoke(program, [*args, "--json"])
    assert ran.exit_code == 0, (args, ran.output, ran.exception)
    return values(json.loads(ran.stdout))


def frozen(keep: Path | None) -> dict[str, str]:
    found = {}
    with TemporaryDirectory() as folder:
        made = Path(folder)
        for name, options in SYNTHETIC.items():
            ran = CliRunner().invoke(program, ["synth", "-o", str(made / name), *options.split()])
            assert ran.exit_code == 0, ran.output
        for name, args in questions(made).items():
            text = "\n".join(answered(args))
            found[name] = (
                f"{text.count(chr(10)) + 1} values, {hashlib.sha256(text.encode()).hexdigest()[:16]}"
            )
            if keep:
                (keep / (name.replace(" ", "_").replace("/", "_")[:100] + ".txt")).write_text(text + "\n")
            print(found[name], name, flush=True)
    return found


def main() -> int:
    keep = Path(os.environ["KEEP"]) if os.environ.get("KEEP") else None
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
    found = frozen(keep)
    if os.environ.get("WRITE"):
        STORED.write_text(json.dumps(found, indent=1) + "\n")
    stored = json.loads(STORED.read_text())
    moved = sorted(name for name in stored.keys() | found.keys() if stored.get(name) != found.get(name))
    print("\n".join(["moved:", *moved]) if moved else f"{len(found)} answers as stored")
    return bool(moved)


if __name__ == "__main__":
    sys.exit(main())
