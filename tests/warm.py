"""Compile every policy's loop once, on all CPUs, before the processes of the suite would each do so.

python tests/warm.py
"""

from ptanalyze.analysis.whatif import captured_world, planned, replayed
from ptanalyze.core.bundled import bundled
from ptanalyze.core.machine import load_costs, load_machine
from ptanalyze.formats.capture import load
from ptanalyze.policies import policies

MACHINE = load_machine("vmitosis-cascade-lake")

for sample in ("sysbench-memory", "vm-numa-visible"):
    capture = load(bundled("samples") / sample)
    plans = planned([(name, {"node": 1} if name == "bind" else {}) for name in policies()], "linux")
    world = captured_world(capture.snapshot, capture.trace if capture.has_trace else None, MACHINE)
    replayed(world, plans, load_costs(MACHINE), refused={})
