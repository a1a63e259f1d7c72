"""Memories of guests as dicts {frame: {slot: entry}}, sane and hostile, and what reads them."""

import numpy as np
from hypothesis import strategies as st

TABLE, HUGE = 0x67, 0xE7
MANY = st.sampled_from([0, 1, 2, 255, 256, 300, 511])


def reader(memory):
    """The read function of a dict {frame: {slot: entry}}; whole pages only."""

    def read(gpa, n):
        assert gpa % 4096 == 0 and n == 4096
        if gpa >> 12 not in memory:
            return None
        page = np.zeros(512, "<u8")
        for slot, raw in memory[gpa >> 12].items():
            page[slot] = raw
        return page.tobytes()

    return read


def memory_of(tree):
    return {
        int(frame): {int(slot): int(row[slot]) for slot in np.flatnonzero(row)}
        for frame, row in zip(tree.frame, tree.entries, strict=True)
    }


@st.composite
def hostile_memory(draw):
    """{frame: {slot: entry}}: a few pages whose entries point anywhere, themselves and beyond included."""
    frames = draw(st.lists(st.integers(1, 24), min_size=1, max_size=10, unique=True))
    anywhere = st.sampled_from(frames) | st.integers(0, 30) | st.integers(0, (1 << 40) - 1)
    flags = st.sampled_from([TABLE, TABLE, TABLE, HUGE, 0x66, 0x100, 1])
    entry = st.builds(lambda frame, flag: frame << 12 | flag, anywhere, flags) | st.integers(0, (1 << 64) - 1)
    return {frame: draw(st.dictionaries(MANY, entry, max_size=5)) for frame in frames}
