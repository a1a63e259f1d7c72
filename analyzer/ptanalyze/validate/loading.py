"""Setting data up: a single thread touches every page first (Hydra, section 5.5, the loading phase)."""

import numpy as np

from ..core.machine import load_machine
from .designs import HYDRA, LINUX, MITOSIS
from .locking import work
from .script import Script

START, PAGES = 1 << 30, 1 << 14  # page number, 64 MiB


def loading(pages: int = PAGES) -> dict[str, float]:
    """{design: ns per page}: its fault with zeroing and share of table pages, nothing of the program's."""
    script = Script([0])
    script.mmap(0, START - 1, 1 + pages)
    script.touch(0, START - 1)
    script.mark()
    script.touch(0, START + np.arange(pages))
    results = script.before_and_after({"linux": LINUX, "mitosis": MITOSIS, "hydra": HYDRA})
    ghz = load_machine("hydra-haswell").ghz
    return {name: work(*both, pages, ghz).busy for name, both in results.items()}
