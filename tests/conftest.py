"""In CI the property tests draw the same examples each time; new ones are looked for outside of it."""

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
