"""Run time from counters alone, without a trace: the fit of the run-time law and its prior."""

COMMANDS = {
    "Model": {
        "calibrate": ("ptanalyze_law.calibrate_command", "Fit the run-time model to perf counters."),
        "predict": ("ptanalyze_law.predict_command", "Predict run times from a calibration."),
    }
}
