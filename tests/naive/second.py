"""The second filter, record by record."""

COUNT_MAX = (1 << 18) - 1


def second(records, sets=128):
    """[(page, store, count)] of a chunk without those of the page that was last in its set."""
    kept, last = [], {}
    for page, store, count in records:
        at = last.get(page % sets)
        if at is not None:
            before, stored, counted = kept[at]
            if before == page and (stored or not store) and counted + count <= COUNT_MAX:
                kept[at] = (page, stored, counted + count)
                continue
        last[page % sets] = len(kept)
        kept.append((page, store, count))
    return kept


def spared(thread, number, one_in=16, run=64):
    """Whether chunk `number` of a thread is in a run that the filter spares."""
    of, word = number // run, (1 << 32) - 1
    mixed = (((of // one_in << 16) ^ thread) + 0x9E3779B9) & word
    mixed = ((mixed ^ mixed >> 16) * 0x7FEB352D) & word
    mixed = ((mixed ^ mixed >> 15) * 0x846CA68B) & word
    return of % one_in == (mixed ^ mixed >> 16) % one_in
