"""Which pages several processes map, from lists of what each maps: [(address, frame, level)] by PID."""


def pages_of(mappings):
    """{address: frame} of 4 KiB pages."""
    return {
        address + (k << 12): frame + k
        for address, frame, level in mappings
        for k in range(512 ** (level - 1))
    }


def shared(of):
    """({PID: pages}, {PID: pages that another maps}, {(PID, base): (entries, entries of shared pages)})."""
    frames = {pid: set(pages_of(mappings).values()) for pid, mappings in of.items()}
    common = {
        pid: mine & set().union(*(theirs for other, theirs in frames.items() if other != pid))
        for pid, mine in frames.items()
    }
    tables = {}
    for pid, mappings in of.items():
        for address, frame, level in mappings:
            if level == 1:
                entries, both = tables.get((pid, address >> 21), (0, 0))
                tables[pid, address >> 21] = entries + 1, both + (frame in common[pid])
    counted = {key: found for key, found in tables.items() if found[1]}
    return {p: len(f) for p, f in frames.items()}, {p: len(f) for p, f in common.items()}, counted


def groups(of):
    """{frozenset of (PID, base >> 21)}: leaf tables, two or more, linked by a frame at the same slot."""
    counted = shared(of)[2]
    places = {}
    for pid, mappings in of.items():
        for address, frame, level in mappings:
            if level == 1 and (pid, address >> 21) in counted:
                places.setdefault((frame, address >> 12 & 511), set()).add((pid, address >> 21))
    found = []
    for linked in places.values():
        touching = [group for group in found if group & linked]
        found = [group for group in found if not group & linked] + [set(linked).union(*touching)]
    return {frozenset(group) for group in found if len(group) > 1}
