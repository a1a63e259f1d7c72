"""The emulated machine's raw memory, seen from outside."""

import numpy as np

FOUR_GIB = 1 << 32
PAGE = 4096


class Ram:
    """Guest-physical pages of a Machine after it ran: `directory`/i holds the memory of node i.

    The q35 board leaves a hole below 4 GiB (QEMU hw/i386/pc_q35.c): of 2.75 GiB or more, what is beyond the
    first 2 GiB begins at 4 GiB.
    """

    def __init__(self, machine, directory):
        self.node_pages = machine.node_bytes // PAGE
        self.low = min(machine.bytes, 0x80000000 if machine.bytes >= 0xB0000000 else 0xB0000000) // PAGE
        self.count = machine.bytes // PAGE
        self.files = [
            np.memmap(directory / str(node), np.uint64, "r", shape=(self.node_pages, 512))
            for node in range(machine.nodes)
        ]

    def page(self, frames):
        """int64: each frame's page in the nodes' files laid end to end, -1 where there is no memory."""
        frames = np.asarray(frames, np.int64)
        high = frames >= FOUR_GIB // PAGE
        page = np.where(high, frames - FOUR_GIB // PAGE + self.low, frames)
        there = (frames >= 0) & (page < self.count) & (high | (frames < self.low))
        return np.where(there, page, -1)

    def node(self, frames):
        """int16: node of each frame, -1 where there is no memory."""
        page = self.page(frames)
        return np.where(page < 0, -1, page // self.node_pages).astype(np.int16)

    def tables(self, frames):
        """uint64[n, 512]: contents of page frames, all of which must be memory."""
        return self.gather(frames, slice(None))

    def first_words(self, frames):
        """uint64[n]: the first eight bytes of page frames, all of which must be memory."""
        return self.gather(frames, 0)

    def gather(self, frames, words):
        page = self.page(frames)
        if (page < 0).any():
            raise ValueError(f"frame {np.asarray(frames)[page < 0][0]:#x} is no memory of this machine")
        found = np.zeros((len(page), *self.files[0][:1, words].shape[1:]), np.uint64)
        for node, file in enumerate(self.files):
            here = page // self.node_pages == node
            found[here] = file[page[here] % self.node_pages, words]
        return found
