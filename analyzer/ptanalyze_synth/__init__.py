"""Captures of synthetic workloads, larger than any machine at hand: a satellite of `ptanalyze`."""

COMMANDS = {"Capture": {"synth": ("ptanalyze_synth.command", "Generate a capture of a synthetic workload.")}}
