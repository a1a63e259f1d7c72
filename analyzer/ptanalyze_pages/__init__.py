"""Page sizes, of a capture and of a running process: which mapping gains, and what is gained."""

COMMANDS = {
    "Change a process": {
        "trial": ("ptanalyze_pages.trial_command", "Measure what huge pages give a process."),
        "hugepages": ("ptanalyze_pages.hugepages_command", "Make pages of a process huge, the best first."),
    },
}
