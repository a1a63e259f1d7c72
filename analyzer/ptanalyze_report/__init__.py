"""An HTML page about captures, for people: it is self-contained and reads whole without scripts.

Its contents come from analysis and capture/check; here they become words, tables and figures.
"""

COMMANDS = {"Ask": {"report": ("ptanalyze_report.command", "Write an HTML report about captures.")}}
