"""A set-associative true-LRU array: one OrderedDict a set, the most recent last."""

from collections import OrderedDict


class SetAssoc:
    def __init__(self, sets, ways):
        self.sets, self.ways = [OrderedDict() for _ in range(sets)], ways

    def touch(self, index, tag):
        """Whether set index % sets holds the tag; afterwards it does, as the most recent."""
        row = self.sets[index % len(self.sets)]
        hit = tag in row
        row[tag] = True
        row.move_to_end(tag)
        if len(row) > self.ways:
            row.popitem(last=False)
        return hit

    def drop(self, tag):
        for row in self.sets:
            row.pop(tag, None)

    def clear(self):
        for row in self.sets:
            row.clear()
