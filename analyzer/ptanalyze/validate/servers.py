"""Servers that change their mappings with every request (Hydra, sections 5.6.3 and 5.6.4)."""

import numpy as np

from ..core.machine import load_machine
from .designs import DESIGNS
from .locking import Work, work
from .script import Script

SOCKETS = 4  # with threads
ROUNDS = 4
PAGES = 3  # of a web page's buffer: assumed
BASE, REGION = 1 << 22, 512  # pages
KEPT = 256  # pages from a buffer to the page of its thread that stays
THREADS = (4, 8, 16, 32)


def web_server(threads: int) -> dict[str, tuple[Work, float]]:
    """{design: (Work, IPIs)} per request: each thread maps a buffer, writes and unmaps it (section 5.6.3).

    Buffers of all threads lie side by side, in a leaf table where each has a page that stays mapped.
    """
    script = Script(np.arange(threads) % SOCKETS)
    buffers = BASE + PAGES * np.arange(threads)
    for thread, at in enumerate(buffers.tolist()):
        script.mmap(thread, BASE - REGION * (thread + 1), REGION)  # its stack
        script.touch(thread, BASE - REGION * (thread + 1))
        script.mmap(thread, at + KEPT, 1)
        script.touch(thread, at + KEPT)
    script.mark()
    for _ in range(ROUNDS):
        for thread, at in enumerate(buffers.tolist()):
            script.mmap(thread, at, PAGES)
            script.touch(thread, at + np.arange(PAGES))
            script.munmap(thread, at, PAGES)
    ghz, requests = load_machine("hydra-haswell").ghz, ROUNDS * threads
    return {
        name: (work(before, after, requests, ghz), (after.count("ipis") - before.count("ipis")) / requests)
        for name, (before, after) in script.before_and_after(DESIGNS).items()
    }


def guarded_store(shared: bool) -> dict[str, Work]:
    """{design: Work} per request of a store whose process has two threads on two sockets (section 5.6.4).

    Data are made accessible and inaccessible again around each critical section.
    shared  both threads have touched the data's leaf tables, otherwise only the thread itself
    """
    script = Script([0, 1])
    for thread in (0, 1):
        script.mmap(thread, BASE + thread * REGION, REGION)
        for other in (thread, 1 - thread) if shared else (thread,):
            script.touch(other, BASE + thread * REGION + np.arange(REGION))
        script.mprotect(thread, BASE + thread * REGION, REGION)
    script.mark()
    for slot in range(ROUNDS):
        for thread in (0, 1):
            at = BASE + thread * REGION + slot
            script.mprotect(thread, at, 1, prot=3)
            script.touch(thread, at)
            script.mprotect(thread, at, 1)
    ghz, done = load_machine("hydra-haswell").ghz, 2 * ROUNDS
    return {name: work(*both, done, ghz) for name, both in script.before_and_after(DESIGNS).items()}
