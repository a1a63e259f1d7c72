"""Memories of guests: tables as dicts {frame: {slot: entry}}, and a little Linux."""

import struct

import numpy as np
from hypothesis import strategies as st

# Memories of guests as dicts {frame: {slot: entry}}, sane and hostile, and what reads them.

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


# A guest's memory with a little Linux in it: an image with BTF and the first task, processes, tables.
#
# Written here from the formats' descriptions, by no function of the package.

PAGE = 4096
IMAGE, DIRECT = 0xFFFF_FFFF_8120_0000, 0xFFFF_8A80_0000_0000  # where the image and all of memory are mapped
IMAGE_FRAME = 0x4000
TYPES = {
    "list_head": [("next", 0), ("prev", 64)],
    "task_struct": [
        ("flags", 32),
        ("", 64, [("tasks", 128), ("mm", 256), ("tgid", 384), ("group_leader", 448), ("comm", 640)]),
    ],
    "mm_struct": [("", 0, [("pgd", 320)])],
}
TASKS, MM, TGID, LEADER, COMM, PGD = 24, 40, 56, 64, 88, 40  # bytes: what TYPES says


def btf(types):
    """BTF of {struct: [(member, bits), ("", bits, [members of an unnamed struct])]}."""
    strings, kinds = bytearray(b"\0"), []

    def name(text):
        if not text:
            return 0
        strings.extend(text.encode() + b"\0")
        return len(strings) - len(text) - 1

    def add(title, members):
        rows = [(name(m[0]), add("", m[2]) if len(m) == 3 else 1, m[1]) for m in members]
        kinds.append(struct.pack("<III", name(title), 4 << 24 | len(rows), 64) + b"".join(
            struct.pack("<III", *row) for row in rows))  # fmt: skip
        return len(kinds)

    kinds.append(struct.pack("<IIII", name("long"), 1 << 24, 8, 64))
    kinds.append(struct.pack("<IIIIII", name("colour"), 6 << 24 | 1, 4, name("red"), 0, 0)[:20])
    for title, members in types.items():
        add(title, members)
    body = b"".join(kinds)
    head = struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(body), len(body), len(strings))
    return head + body + bytes(strings)


def header(blob, extra=0):
    """The header of `blob` as if it had `extra` more bytes."""
    return blob[:4] + struct.pack("<I", 24 + extra) + blob[8:24]


class Memory:
    """Guest-physical memory by frame; `image` and `direct` are where frames are mapped for the kernel."""

    def __init__(self, levels=4):
        self.pages, self.levels, self.next = {}, levels, 0x100

    def frame(self):
        self.next += 1
        self.pages[self.next] = bytearray(PAGE)
        return self.next

    def write(self, address, content):
        for k, byte in enumerate(content):
            at = address + k
            self.pages[at // PAGE][at % PAGE] = byte

    def word(self, address, value):
        self.write(address, struct.pack("<Q", value))

    def map(self, root, virtual, frame, level=1, flags=0x63):
        """Map a page of a level below `root`, with tables for it where there are none."""
        table = root
        for here in range(self.levels, level, -1):
            at = table * PAGE + (virtual >> (3 + 9 * here) & 511) * 8
            (raw,) = struct.unpack_from("<Q", self.pages[table], at % PAGE)
            if not raw:
                raw = self.frame() << 12 | 0x67
                self.word(at, raw)
            table = raw >> 12
        huge = 0x80 if level > 1 else 0
        self.word(table * PAGE + (virtual >> (3 + 9 * level) & 511) * 8, frame << 12 | flags | huge)

    def read(self, gpa, n):
        """As the readers of guests want it: None where not all n bytes are memory."""
        content = b""
        while len(content) < n:
            frame, at = divmod(gpa + len(content), PAGE)
            if frame not in self.pages:
                return None
            content += bytes(self.pages[frame][at : at + n - len(content)])
        return content


def linux(memory, processes, types=TYPES, huge=False):
    """(root of the kernel, roots of `processes`): [(pid, name, owner)], owner: whose memory it shares.

    A process of pid < 0 is a kernel thread; huge: the image is mapped by a page of 2 MiB.
    """
    kernel = memory.frame()
    blob = btf(types)
    frames = [IMAGE_FRAME + k for k in range(512 if huge else len(blob) // PAGE + 3)]
    memory.pages |= {frame: bytearray(PAGE) for frame in frames}
    if huge:
        memory.map(kernel, IMAGE, IMAGE_FRAME, level=2)
    else:
        for k, frame in enumerate(frames):
            memory.map(kernel, IMAGE + k * PAGE, frame)
    for k, byte in enumerate(blob):  # not at the start of a page
        at = k + 72
        memory.pages[frames[at // PAGE]][at % PAGE] = byte
    first = frames[-1] * PAGE + 512
    tasks, roots = [first], []
    virtual = [IMAGE + (len(frames) - 1) * PAGE + 512]
    for _ in processes:
        frame = memory.frame()
        memory.map(kernel, DIRECT + frame * PAGE, frame)
        tasks.append(frame * PAGE + 3008)
        virtual.append(DIRECT + frame * PAGE + 3008)
    count = len(tasks)
    for k, task in enumerate(tasks):
        memory.word(task + TASKS, virtual[(k + 1) % count] + TASKS)
        memory.word(task + TASKS + 8, virtual[k - 1] + TASKS)
        memory.word(task + LEADER, virtual[k])
    memory.write(first + COMM, b"swapper/0\0")
    for (pid, name, owner), task in zip(processes, tasks[1:], strict=True):
        memory.write(task + TGID, struct.pack("<I", abs(pid)))
        memory.write(task + COMM, name.encode("utf-8", "surrogateescape")[:15].ljust(16, b"\0"))
        root = None
        if pid >= 0 and owner is None:
            root = memory.frame()
            memory.pages[root][2048:] = memory.pages[kernel][2048:]
            memory.map(kernel, DIRECT + root * PAGE, root)
            structure = memory.frame()
            memory.map(kernel, DIRECT + structure * PAGE, structure)
            memory.word(structure * PAGE + PGD, DIRECT + root * PAGE)
            memory.word(task + MM, DIRECT + structure * PAGE)
        elif pid >= 0:
            root = roots[owner]
            memory.word(task + MM, struct.unpack("<Q", memory.read(tasks[1 + owner] + MM, 8))[0])
        roots.append(root)
    return kernel, roots
