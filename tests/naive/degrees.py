"""Twin of policies.hydra and of `never_used`: entries in sets, faults as intervals to be hit."""

from collections import defaultdict

from .policies import Hydra


class Watched(Hydra):
    """Hydra, and what becomes of the entries that it copies.

    fresh  (entry, node) copied and not used by the node since; used, copied: how many ever were
    needs  {(table, node): [(when an entry was made, when the node asked for it)]}
    comes  {(table, node): [when the node had a demand fault that another node's table serves too]}
    """

    def __init__(self, *arguments, **settings):
        super().__init__(*arguments, **settings)
        self.fresh, self.used, self.copied, self.now, self.walker = set(), 0, 0, 0, None
        self.made, self.needs, self.comes = defaultdict(int), defaultdict(list), defaultdict(list)

    def walk(self, page, node, made):
        entry = self.memory.entry(page)
        table = entry[0], entry[1] >> 9
        self.now, self.walker = self.now + 1, node
        had, owner = node in self.copies.get(entry, ()), self.memory.owner(entry)
        if made is not None:
            self.made[entry] = self.now
            if node != owner:
                self.comes[table, node].append(self.now)
        elif not had and node != owner:
            self.needs[table, node].append((self.made[entry], self.now))
        if had and (entry, node) in self.fresh:
            self.fresh.discard((entry, node))
            self.used += 1
        server = super().walk(page, node, made)
        if (entry, node) in self.fresh:
            self.fresh.discard((entry, node))
            self.used += 1
        return server

    def window(self, entry, first):
        found, owner = super().window(entry, first), self.memory.owner(entry)
        for e in found:
            if owner in self.copies.get(e, ()) and self.walker not in self.copies[e]:
                self.fresh.add((e, self.walker))
                self.copied += 1
        return found

    def store(self, entry, node, stores=1, stays=True):
        super().store(entry, node, stores, stays)
        self.fresh = {(e, n) for e, n in self.fresh if e != entry}

    def clear(self, entry):
        super().clear(entry)
        self.fresh = {(e, n) for e, n in self.fresh if e != entry}

    def moved(self, entry, made, node):
        self.now += 1
        self.made[entry] = self.now
        super().moved(entry, made, node)


def least_faults(needs, comes):
    """The fewest points that hit all intervals which no point of `comes` hits: the most that are disjoint."""
    open_ones = sorted(
        ((made, asked) for made, asked in needs if not any(made <= at <= asked for at in comes)),
        key=lambda interval: interval[1],
    )
    best = []  # best[k]: the most disjoint ones that end with number k
    for k, (made, _) in enumerate(open_ones):
        best.append(1 + max((best[j] for j in range(k) if open_ones[j][1] < made), default=0))
    return max(best, default=0)
