"""In CI the property tests draw the same examples each time; new ones are looked for outside of it."""

import os
import signal

from hypothesis import settings

settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

os.environ.pop("COLUMNS", None)  # the tests' tables are as wide as nobody says, whatever terminal they run in

# A shell starts what runs in its background with Ctrl-C ignored, and so would all that tests start and stop.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
