"""Twin of world.mm_events: one mremap after the other, each region looked for on its own."""

from ptanalyze.core.trace import Event

REGION, TOP = 1 << 21, 1 << 63


def regions_with_passed(touched, events):
    """[address // REGION]: those of `touched`, in this order, then those that mremap moved them to."""
    known = list(touched)
    for event in events:
        source, there = int(event["a"]), int(event["result"])
        size = (min(int(event["b"]), int(event["c"])) + 4095) // 4096 * 4096
        if event["kind"] != Event.MREMAP or there <= 0 or there == source or max(source, size) >= TOP:
            continue
        for region in sorted(known):
            first, past = max(region * REGION, source), min((region + 1) * REGION, source + size)
            if first >= past:
                continue
            for at in range((first - source + there) // REGION, (past - 1 - source + there) // REGION + 1):
                if at not in known:
                    known.append(at)
    return known
