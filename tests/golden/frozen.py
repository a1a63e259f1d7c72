"""The numbers of every answer, frozen: `make golden` compares them, `make golden WRITE=1` stores them.

An answer is a command's `--json`. What is hashed are its values in order: numbers, booleans and single words. Keys,
prose and provenance are left out, so that a renamed column or a better sentence changes nothing here, and a moved
number does. `KEEP=DIR` writes each answer's values to a file, to be compared line by line.
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
PROSE = {"provenance", "notes", "assumptions", "units", "note", "title", "what", "text"}
CAPTURES = ("lookup", "sysbench-memory", "vm-numa-visible", "vm-numa-oblivious")
SYNTHETIC = {
    "native": "--size 64M --nodes 4 --threads 4 --accesses 60000",
    "zipf": "--size 64M --nodes 2 --threads 2 --pattern zipf:1.0 --accesses 60000",
    "visible": "--size 64M --nodes 4 --threads 4 --guest visible --accesses 60000",
    "oblivious": "--size 64M --nodes 4 --threads 4 --guest oblivious --accesses 60000",
}
NATIVE = "-p linux -p first-touch -p interleave -p mitosis -p hydra -p vmitosis-migrate -p wasp -p thp"
NESTED = "-p linux -p vmitosis-migrate -p vmitosis-replicate -p ptemagnet -p thp -p shadow -p ideal"
OF_A_CAPTURE = {
    "whatif {} %s": "policies",
    "whatif {} %s --cold": "policies",
    "whatif {} %s --weight leaf": "policies",
    "classify {}": "",
    "advise {}": "",
    "timeline {} -p linux": "",
    "check {}": "",
}
OF_NATIVE = ("degrees {}", "sweep {} -p hydra --set prefetch=0,9 --set latency_ratio=2,4")
ELSEWHERE = (
    "validate --quick --paper hydra",
    "predict --statistics",
    "machines",
    "policies",
    "whatif lookup -p mitosis --horizon 1h",
)


def commands(made: Path) -> dict[str, list[str]]:
    """{what it is called in the store: its arguments}; synthetic captures lie in `made`."""
    asked = {}
    for name in (*CAPTURES, *SYNTHETIC):
        where = name if name in CAPTURES else str(made / name)
        nested = name in ("visible", "oblivious") or name.startswith("vm-")
        policies = (
            NESTED.replace("-p vmitosis-replicate", "-p vmitosis-replicate --set mode=no-p")
            if (name.endswith("oblivious"))
            else (NESTED if nested else NATIVE)
        )
        forms = [form % policies if "%s" in form else form for form in OF_A_CAPTURE]
        for form in (*forms, *(() if nested else OF_NATIVE)):
            asked[form.format(name)] = form.format(where).split()
    return asked | {line: line.split() for line in ELSEWHERE}


def values(answer) -> list[str]:
    """The values of a JSON answer, in order, without prose."""
    if isinstance(answer, dict):
        return [x for key, part in answer.items() if key not in PROSE for x in values(part)]
    if isinstance(answer, list):
        return [x for part in answer for x in values(part)]
    if answer is None or (isinstance(answer, str) and (" " in answer or "/" in answer)):
        return []
    return [repr(answer)]


def answered(args: list[str]) -> list[str]:
    ran = CliRunner().invoke(program, [*args, "--json"])
    return [f"exit {ran.exit_code}", *(values(json.loads(ran.stdout)) if ran.stdout.strip() else [])]


def frozen(keep: Path | None = None) -> dict[str, str]:
    found = {}
    with TemporaryDirectory() as folder:
        made = Path(folder)
        for name, options in SYNTHETIC.items():
            ran = CliRunner().invoke(program, ["synth", "-o", str(made / name), *options.split()])
            assert ran.exit_code == 0, ran.output
        for name, args in commands(made).items():
            lines = answered(args)
            found[name] = (
                f"{lines[0]}, {len(lines) - 1} values, "
                + hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
            )
            if keep:
                keep.mkdir(parents=True, exist_ok=True)
                (keep / (name.replace(" ", "_").replace("/", "_")[:100] + ".txt")).write_text(
                    "\n".join(lines) + "\n"
                )
            print(found[name], name, flush=True)
    return found


if __name__ == "__main__":
    keep = os.environ.get("KEEP")
    found = frozen(Path(keep) if keep else None)
    if os.environ.get("WRITE"):
        STORED.write_text(json.dumps(found, indent=1) + "\n")
    stored = json.loads(STORED.read_text())
    moved = [name for name in stored.keys() | found.keys() if stored.get(name) != found.get(name)]
    print("\n".join(["moved:", *sorted(moved)]) if moved else f"{len(found)} answers as stored")
    sys.exit(bool(moved))
