"""Page sizes, of a capture and of a running process: which mapping gains, and what is gained."""

COMMANDS = {
    "Ask": {"hugepages": ("ptanalyze_pages.hugepages_command", "Rank mappings by gain from huge pages.")},
    "Model": {"trial": ("ptanalyze_pages.trial_command", "Measure a program with other tables or pages.")},
}
