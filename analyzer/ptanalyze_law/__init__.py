"""Run time from counters alone, without a trace: the fit of the run-time law and its prior."""

COMMANDS = {
    "Model": {"calibrate": ("ptanalyze_law.calibrate_command", "Fit perf counters and predict run times.")}
}
