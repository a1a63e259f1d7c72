"""Compile every policy's loop once, on all CPUs, before the processes of the suite would each do so.

python tests/warm.py
"""

from ptanalyze.analysis.opened import opened
from ptanalyze.analysis.replay import planned, replay_world
from ptanalyze.analysis.setup import Setup
from ptanalyze.core.bundled import bundled
from ptanalyze.policies import policies

SETUP = Setup.of()

for sample in ("sysbench-memory", "vm-numa-visible"):
    plans = planned([(name, {"node": 1} if name == "bind" else {}) for name in policies()], "linux")
    replay_world(opened(bundled("samples") / sample).world(SETUP), plans, SETUP, refused={})
