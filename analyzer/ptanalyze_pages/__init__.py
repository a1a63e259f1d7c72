"""Page sizes, of a capture and of a running process: which mapping gains, and what is gained."""

COMMANDS = {
    "Change a process": {
        "trial": ("ptanalyze_pages.trial_command", "Measure what page size or far tables cost."),
        "hugepages": ("ptanalyze_pages.hugepages_command", "Rank or make a process's huge pages."),
    },
}
