"""Published figures beside this package's: a file per paper, a function per figure."""

COMMANDS = {"Model": {"validate": ("ptanalyze_papers.command", "Compare results with published figures.")}}
