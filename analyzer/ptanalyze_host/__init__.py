"""The running host: survey of its processes, samples of their pages, relocation of their tables."""

COMMANDS = {
    "Capture": {
        "dump": ("ptanalyze_host.dump_command", "Dump the page tables of a process or VM."),
        "doctor": ("ptanalyze_host.doctor_command", "Check what this host supports."),
    },
    "Inspect": {"survey": ("ptanalyze_host.survey_command", "List processes by remote page tables.")},
    "Change a process": {"relocate": ("ptanalyze_host.relocate_command", "Move leaf tables to its threads.")},
}
