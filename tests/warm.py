"""Compile every policy's loops once, on all CPUs, before the processes of the suite would each do so.

python tests/warm.py
"""

from ptanalyze.analysis.setup import Setup, open_replay_capture
from ptanalyze.analysis.whatif import chosen, replay_scenario
from ptanalyze.core.errors import bundled
from ptanalyze.policies import policies
from ptanalyze.world import history

# without steps, and with the steps of a thread that moves
SETUPS = Setup.of(baseline="linux"), Setup.of(baseline="linux", move_threads="0:1@50%")

history.WORTH_COMPILING = 0

asked = [(name, {"node": 1} if name == "bind" else {}) for name in policies()]
for sample in ("sysbench-memory", "vm-numa-visible"):
    for setup in SETUPS:
        scenario = open_replay_capture(bundled("samples") / sample).scenario(setup)
        replay_scenario(scenario, chosen(asked, scenario, setup), setup, refused={})
