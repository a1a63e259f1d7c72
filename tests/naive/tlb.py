"""The TLB of one CPU: entries are (size, page number of that size); the real page number chooses the set."""

from naive.setassoc import SetAssoc

FLUSH_CEILING = 33


class NaiveTlb:
    def __init__(self, tlb):
        array = lambda a: SetAssoc(a.sets, a.ways) if a else SetAssoc(1, 0)  # noqa: E731
        self.l1 = {1: array(tlb.l1_4k), 2: array(tlb.l1_2m), 3: array(tlb.l1_1g)}
        shared, none = array(tlb.l2), array(None)
        self.l2 = {
            size: shared if name in tlb.l2_holds else none for size, name in ((1, "4k"), (2, "2m"), (3, "1g"))
        }
        if tlb.l2_1g:
            self.l2[3] = array(tlb.l2_1g)
        self.hits = [0, 0, 0]

    def touch(self, page_number, size):
        """0, 1, 2: hit the first level, hit the second, missed both."""
        number = page_number >> 9 * (size - 1)
        where = next(
            (k for k, level in enumerate((self.l1, self.l2)) if level[size].touch(number, (size, number))), 2
        )
        self.hits[where] += 1
        return where

    def shoot_down(self, start, end):
        """Drop what maps bytes of start..end; beyond 33 pages, everything."""
        everything = end - start > FLUSH_CEILING << 12
        for array in (*self.l1.values(), *self.l2.values()):
            for row in array.sets:
                for size, number in list(row):
                    first = number << (3 + 9 * size)
                    if everything or (first < end and start < first + (1 << (3 + 9 * size))):
                        del row[size, number]
