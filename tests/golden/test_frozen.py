"""The numbers of answers, frozen: a change of structure moves none of them, a change of numbers says which.

An answer is a command's `--json`: numbers, booleans and single words in order; keys, prose and provenance
are left out. Counts and words are kept as a hash, measures (floats) by value, compared to a relative 1e-9.
`make golden WRITE=1` stores intended changes; KEEP=DIR writes each answer's values to a file, a line each.
"""

import hashlib
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec import structs

from captures import TOUCHES, TRIAL, make_family, shorter, write_trace
from ptanalyze.cli import ptanalyze as program
from ptanalyze.core.errors import bundled
from ptanalyze.core.interval import Interval
from ptanalyze.cost.law import MeasuredRun
from ptanalyze.formats.measured import write_calibration
from ptanalyze.formats.record import MANIFEST, seal
from ptanalyze.formats.trace import read_trace
from ptanalyze.policies import names
from ptanalyze_law.calibrate import calibrate_runs

STORED = Path(__file__).with_name("frozen.json")
PROSE = {"provenance", "notes", "findings", "assumptions", "units", "note", "title", "what", "text"}
TOLERANCE = 1e-9
SAMPLES = {name: touches for name, touches in TOUCHES.items() if name != "embeddings"}
SYNTHETIC = {
    "native": "--size 64M --nodes 4 --threads 4 --accesses 60000",
    "zipf": "--size 64M --nodes 2 --threads 2 --pattern zipf:1.0 --accesses 60000",
    "visible": "--size 64M --nodes 4 --threads 4 --guest visible --accesses 60000",
    "oblivious": "--size 64M --nodes 4 --threads 4 --guest oblivious --accesses 60000",
    "short": "--size 1G --nodes 2 --threads 2 --no-init-trace --accesses 8192",
}
NATIVE = "-p linux,first-touch,interleave,bind,ideal,mitosis,hydra,vmitosis-migrate,wasp,thp"
NESTED = (
    "-p linux,vmitosis-migrate,vmitosis-replicate,ptemagnet,thp,shadow,ept-reset,ideal,"
    "shadow+mitosis,thp+ptemagnet+vmitosis-replicate"
)
OBLIVIOUS = NESTED.replace("replicate", "replicate:mode=no-p")
FEW = "-p linux,first-touch,mitosis,hydra,thp"
EVERYWHERE = ("whatif {} {policies}", "whatif {} {policies} --cold", "whatif {} {policies} --weight leaf",
              "classify {}", "advise {}", "timeline {} -p linux")  # fmt: skip
ELSEWHERE = (
    f"whatif short {FEW} --cache-share 0.02",
    f"whatif sampled {FEW}",
    f"whatif native {FEW} --stands-for 16x",
    f"whatif oblivious {OBLIVIOUS} --stands-for 16x",
    f"whatif native {FEW} --calibration measured.toml",
    f"whatif native {FEW} --calibration remote.toml",
    f"whatif native {FEW} --calibration pages.toml",
    f"whatif timed {FEW} --calibration pages.toml",
    "advise native --calibration pages.toml",
    f"whatif sysbench-memory {NATIVE} --cold -m hydra-haswell",
    f"whatif vm-numa-visible {NESTED} --calibration guest.toml",
    f"whatif timed {FEW}",
    f"whatif processes {FEW}",
    "whatif native -p linux,hydra --contended",
    "sweep native -p hydra --set prefetch=0,9 --set latency_ratio=2,4",
)


def questions():
    """{name in the store: arguments after the command's capture}"""
    asked = list(ELSEWHERE)
    for name in (*SAMPLES, *(name for name in SYNTHETIC if name != "short")):
        native = not name.endswith(("visible", "oblivious"))
        policies = NATIVE if native else OBLIVIOUS if name.endswith("oblivious") else NESTED
        forms = [form for form in EVERYWHERE if "--cold" not in form or not name.startswith("vm-")]
        asked += [form.format(name, policies=policies) for form in forms]
    return asked


def measured(place, name, **changes):
    """A calibration file of a run that was counted."""
    found = calibrate_runs(MeasuredRun(1e12, 3e11, 0.0), native=True)
    write_calibration(place / f"{name}.toml", structs.replace(found, **changes))


def again(capture, copy, trace=None, **facts):
    """A copy of a capture with another trace, or with further facts."""
    shorter(capture, copy, 1 << 40)
    if trace:
        write_trace(copy / "trace.ptt", trace)
    record = json.loads((copy / "snapshot.json").read_text())
    record["facts"] |= facts
    (copy / "snapshot.json").write_text(json.dumps(record))
    seal(copy, "process", json.loads((capture / MANIFEST).read_text())["provenance"])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Directory with all captures and calibrations that are asked about."""
    made = tmp_path_factory.mktemp("frozen")
    for name, touches in SAMPLES.items():
        shorter(bundled("samples") / name, made / name, touches)
    for name, options in SYNTHETIC.items():
        ran = CliRunner().invoke(program, ["synth", "-o", str(made / name), *options.split()])
        assert ran.exit_code == 0, ran.output
    trace = read_trace(made / "zipf" / "trace.ptt")
    facts = {**trace.facts, "sampled": True, "walks": True}
    again(made / "zipf", made / "sampled", replace(trace, facts=facts))
    executed = int(read_trace(made / "native" / "trace.ptt").chunks["instructions"].sum())
    timed = {"how": "counted", "seconds": 0.001, "system_seconds": 0.0, "user_seconds": 0.002, "ghz": 2.0}
    again(made / "native", made / "timed", native=timed | {"instructions": executed})
    make_family(made / "processes")
    measured(made, "measured")
    measured(made, "remote", exposed=Interval(0.5, 0.6, 0.8), shared=Interval(0.0, 0.5, 1.0), at="LP")
    trial = structs.replace(TRIAL, resident_bytes=64 << 20, nodes=1)
    write_calibration(made / "pages.toml", trial)
    write_calibration(made / "guest.toml", structs.replace(trial, resident_bytes=6 << 30))
    return made


def values(answer):
    """Values of a JSON answer, in order, without prose."""
    if isinstance(answer, dict):
        return [x for key, part in answer.items() if key not in PROSE for x in values(part)]
    if isinstance(answer, list):
        return [x for part in answer for x in values(part)]
    if answer is None or (isinstance(answer, str) and re.search("[ /]", answer)):
        return []
    return [answer]


def answered(line, place):
    """(hash of counts and words, measures) of a command's answer."""
    words = [str(place / word) if (place / word).exists() else word for word in line.split()]
    ran = CliRunner().invoke(program, [*words, "--json"])
    assert ran.exit_code == 0, (line, ran.output, ran.exception)
    found = values(json.loads(ran.stdout))
    if os.environ.get("KEEP"):
        name = re.sub("[ /]", "_", line)[:100]
        Path(os.environ["KEEP"], f"{name}.txt").write_text("".join(f"{value!r}\n" for value in found))
    counts = "\n".join(repr(value) for value in found if not isinstance(value, float))
    digest = f"{counts.count(chr(10)) + 1} counts {hashlib.sha256(counts.encode()).hexdigest()[:16]}"
    return digest, [float(f"{value:.12g}") for value in found if isinstance(value, float)]


def test_every_policy_is_asked_about():
    assert {*re.split("[,+]", f"{NATIVE},{NESTED}".replace("-p ", ""))} == {*names()}


@pytest.mark.parametrize("line", questions())
def test_numbers_of(line, place):
    counts, measures = answered(line, place)
    stored = json.loads(STORED.read_text())
    if os.environ.get("GOLDEN") == "write":
        stored[line] = [counts, measures]
        kept = sorted(stored.keys() & {*questions()})
        lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(stored[k])}" for k in kept)
        STORED.write_text("{\n" + lines + "\n}\n")
    assert measures == pytest.approx(stored[line][1], rel=TOLERANCE, abs=0, nan_ok=True)
    assert counts == stored[line][0]
