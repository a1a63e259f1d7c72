"""Data pages that a modelled kernel moves to another node; page tables stay (Linux moves none)."""

import numpy as np

from .hooks import called_hook, kernel
from .synth import ADDRESS, MOVABLE, NONE, back_all, take, take_block


@kernel
def home(space, frame):
    """Node of the memory behind the guest (or native) frame."""
    if not space.nested or space.bound:
        return frame // space.memory.span
    return behind(space, frame) // space.host_memory.span


@kernel
def behind(space, frame):
    """Host frame of a guest frame that a host maps by 4 KiB."""
    entry = space.host.entries[space.host.leaf[frame >> 9], frame & 511]
    return np.int64((entry & ADDRESS) >> np.uint64(12))


@called_hook
def move_one(space, region, slot, frame, target):
    """Give an entry new memory on `target`: its own kernel does (new frame), or the hypervisor, unseen."""
    guest, huge = space.guest, space.guest.huge[region]
    pages = 512 if huge else 1
    if space.nested and not space.bound:
        for part in range(frame, frame + pages):
            new = take(space.host_memory, target, MOVABLE)
            if new < 0:
                return False
            table = space.host.leaf[part >> 9]
            space.host.entries[table, part & 511] = np.uint64(new << 12) | space.host.small
        return True
    new = take_block(space.memory, target) if huge else take(space.memory, target, MOVABLE)
    if new < 0:
        return False
    guest.entries[guest.leaf[region], slot] = np.uint64(new << 12) | (guest.big if huge else guest.small)
    return back_all(space, new, new + pages, target)


@kernel
def move_pages(space, page, last, budget, source, target, moved):
    """Go through pages from `page` on (below `last`) and move those with data on `source` to `target`.

    moved  int64[>= budget + 511], filled: the 4 KiB pages that moved, in address order; at most `budget` and
    the rest of a huge page
    Returns (next page, pages moved); -1 for the page when memory is full.
    """
    done = 0
    while page < last and done < budget:
        region = page >> 9
        huge = space.guest.huge[region]
        slot = region & 511 if huge else page & 511
        entry = space.guest.entries[space.guest.leaf[region], slot]
        size = 512 if huge else 1
        frame = np.int64((entry & ADDRESS) >> np.uint64(12))
        if entry != NONE and home(space, frame) == source:
            if not move_one(space, region, slot, frame, target):
                return -1, done
            for part in range(page, page + size):
                moved[done] = part
                done += 1
        page += size
    return page, done
