"""The modelled kernels' state: page tables in files being written, and free memory."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...formats.tables_file import reserve_entries
from ...kernels.synth import Memory, Radix, Space
from .frames import BLOCK, Frames, frames_of
from .layout import Layout, lay_out
from .plan import Plan

START = (
    1 << 46
)  # first byte of the dataset: aligned to 512 GiB, below the addresses that a 4-level kernel hands out
X86 = (0x67, 0x8000000000000067, 0x80000000000000E7)  # present, writable, user, accessed, dirty; NX; PS
EPT = (0x107, 0x377, 0x3F7)  # read, write, execute, accessed; write-back, ignore PAT, dirty; bit 7
ALL = 1 << 32


@dataclass(frozen=True)
class State:
    """space: changed by the kernels; guest, host: Layouts of all tables there may be (host None: native)."""

    space: Space
    frames: Frames
    guest: Layout
    host: Layout | None


def new_state(plan: Plan, directory: Path) -> State:
    """State before the process begins; in `directory` are files with room for all entries."""
    frames, asked = frames_of(plan), plan.asked
    regions = (START >> 21) + np.arange(plan.regions)
    guest = lay_out(regions, plan.huge, asked.levels)
    key = [int(k) for k in plan.rng(3).integers(0, 1 << 32, 3)]
    radix = new_radix(directory, "gpt", guest, guest.leaf, plan.huge, X86)
    span = frames.guest or frames.host
    memory = new_memory(span, frames.guest_nodes, frames.room, frames.freed, plan.policy, key[0])
    host, nested = None, empty_radix()
    host_room = np.full(asked.nodes, frames.host)
    host_memory = new_memory(frames.host, asked.nodes, host_room, 1, plan.host_policy, key[1])
    if plan.nested:
        host, nested = new_host(plan, directory, memory)
    bound, share = asked.guest == "visible", int(asked.fragmentation * ALL)
    faults = np.zeros(1, np.int64)
    space = Space(radix, memory, nested, host_memory, plan.nested, bound, share, key[2], faults)
    return State(space, frames, guest, host)


def new_memory(span: int, nodes: int, room: np.ndarray, freed: int, policy: int, key: int) -> Memory:
    """Memory with all frames free but the first 2 MiB of each node, which are its kernel's."""
    first = np.arange(nodes) * (span // BLOCK)
    return Memory(
        first + 1,
        first + np.minimum(room, span) // BLOCK,
        np.zeros((nodes, 2), np.int64),
        np.zeros((nodes, freed), np.int64),
        np.zeros(nodes, np.int64),
        np.zeros(1, np.int64),
        span,
        policy,
        key,
    )


def new_host(plan: Plan, directory: Path, memory: Memory) -> tuple[Layout, Radix]:
    """(Layout, Radix) over every guest frame that the guest's memory may ever give."""
    regions = np.concatenate([np.arange(a, b) for a, b in zip(memory.block, memory.end, strict=True)])
    size = memory.span // BLOCK * len(memory.block)
    draws = plan.rng(2).random(size) < (plan.asked.host_thp or 0)
    layout = lay_out(regions, draws[regions], plan.asked.levels)
    leaf = np.full(size, -1, np.int32)
    leaf[regions] = layout.leaf
    return layout, new_radix(directory, "ept", layout, leaf, draws, EPT)


def new_radix(
    directory: Path, name: str, layout: Layout, leaf: np.ndarray, huge: np.ndarray, flags: tuple[int, ...]
) -> Radix:
    entries = reserve_entries(directory, name, len(layout))
    made = np.full(len(layout), -1, np.int64)
    return Radix(entries, made, layout.parent, layout.slot, leaf, huge, *(np.uint64(f) for f in flags))


def empty_radix() -> Radix:
    none = np.zeros((0, BLOCK), np.uint64)
    ids, flags = np.zeros(0, np.int32), [np.uint64(f) for f in EPT]
    return Radix(none, np.zeros(0, np.int64), ids, ids.astype(np.int16), ids, np.zeros(0, bool), *flags)
