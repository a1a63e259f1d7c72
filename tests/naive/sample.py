"""Twin of kernels.thin: from the walks of the whole trace, one at a time."""

from ptanalyze.world.mm_events import invalidations


def kept_touches(trace, whole, known, space):
    """[pages of the walks that stay, their number by chunk]; whole: the WalkStream of all."""
    rows = invalidations(trace.events)
    group = known.of(whole.page).tolist()
    size = {r: int(level) for r, level in enumerate(space.regions.tlb_level)}
    seen, kept, counts, done = {}, [], [], 0
    for chunk, thread in enumerate(trace.chunks["thread"].tolist()):
        while done < len(rows) and rows["chunk"][done] <= chunk:
            first, end = int(rows["start"][done]) >> 12, int(rows["end"][done]) >> 12
            for pages in seen.values():
                for page in [p for p in pages if overlaps(p, first, end, space.regions.va, size)]:
                    pages.remove(page)
            done += 1
        mine, before = seen.setdefault(thread % 2, set()), len(kept)
        for at in range(whole.offset[chunk], whole.offset[chunk + 1]):
            page = int(whole.page[at])
            unit = page if size[page >> 9] == 1 else page >> 9 << 9
            if group[at] != known.outside or unit not in mine:
                kept.append(page)
            if group[at] == known.outside:
                mine.add(unit)
        counts.append(len(kept) - before)
    return [kept, counts]


def overlaps(page, first, end, va, size):
    start = (int(va[page >> 9]) << 9) + (page & 511)
    past = start + (1 if size[page >> 9] == 1 else 512)
    return first < past and start < end
