"""Reading hostile page tables out of a dict {frame: {slot: entry}}: one recursive walk over numbers."""

FRAME = (1 << 52) - (1 << 12)


def read_guest_tables(memory, root, levels, limit, slots=range(256)):
    """([(base, frame, parent, level)], [{slot: entry} kept], {reason: entries dropped}); None: no root."""
    rows, kept, dropped, budget = [], [], {}, [4 * limit]

    def drop(why):
        dropped[why] = dropped.get(why, 0) + 1

    def visit(frame, level, base, parent, above):
        budget[0] -= 1
        if any(frame == known for _, known, _, _ in rows):
            return "points to a table above it" if frame in above else "seen before"
        if len(rows) >= limit:
            return "over the limit"
        if frame not in memory:
            return "beyond memory"
        me = len(rows)
        rows.append((base, frame, parent, level))
        table = {slot: raw for slot, raw in memory[frame].items() if raw and (parent >= 0 or slot in slots)}
        kept.append(table)
        for slot in sorted(table):
            raw = table[slot]
            if level == 1 or not raw & 1 or (level <= 3 and raw & 0x80):
                continue
            why = "over the limit"
            if budget[0] > 0:
                below = base + (slot << (3 + 9 * level))
                why = visit((raw & FRAME) >> 12, level - 1, below, me, [*above, frame])
            if why:
                del table[slot]
                drop(why)
        return ""

    return None if visit(root, levels, 0, -1, []) else (rows, kept, dropped)
