"""PTEMagnet's allocator page by page, in dicts and lists, after section 4 of the paper."""

from collections import Counter, OrderedDict

from naive.classify import leaves, vma_of
from naive.walker import Dimension

CLEAR, MOVE = 1, 3
SINGLE = "single"


class Guest:
    """Pages and frames are numbers; a group and a block are `size` of them.

    pools  {node: blocks}, lowest first; lowest: the first block of the lowest 2 MiB that the host maps
    """

    def __init__(self, pools, lowest, node_of, size, limit, kept):
        self.pools, self.node_of, self.size, self.limit, self.kept = pools, node_of, size, limit, kept
        self.free = {block for pool in pools.values() for block in pool}
        self.frame = {}  # of each mapped page
        self.part = OrderedDict()  # group -> block, the oldest reservation first
        self.count, self.last = Counter(), lowest

    def users(self, block):
        return sum(1 for f in self.frame.values() if f != SINGLE and f // self.size == block)

    def unused(self):
        return sum(self.size - self.users(block) for block in self.part.values())

    def fault(self, page, captured):
        group = page // self.size
        if group in self.part:
            self.count["served"] += 1
        else:
            block = self.take(captured)
            if block is None:
                self.count["fallbacks"] += 1
                self.frame[page] = SINGLE
                return
            self.count["reservations"] += 1
            self.part[group] = block
        block = self.part[group]
        self.frame[page] = block * self.size + page % self.size
        if self.users(block) == self.size:
            del self.part[group]
        while self.limit >= 0 and self.unused() > self.limit:
            self.part.popitem(last=False)
            self.count["reclaimed"] += 1
        if self.unused() >= self.count["peak"]:
            self.count["peak"], self.count["peak_mapped"] = self.unused(), len(self.frame)

    def take(self, captured):
        near = self.last if captured is None else captured // self.size
        per = 512 // self.size
        low = near // per * per
        around = [*range(near, low + per), *range(low, near)]
        for node in (None, self.node_of(near * self.size), *sorted(self.pools)):
            pool = around if node is None else self.pools[node]
            while pool:
                block = pool.pop(0)
                if block in self.free:
                    self.free.remove(block)
                    self.last = block
                    return block
        return None

    def clear(self, page):
        frame = self.frame.pop(page, None)
        if frame in (None, SINGLE):
            return
        block = frame // self.size
        if not self.users(block):
            for group in [g for g, b in self.part.items() if b == block]:
                del self.part[group]
            self.free.add(block)
            pool = self.pools[self.node_of(frame)]
            if block not in pool:
                pool.insert(0, block)

    def move(self, page, target):
        if page not in self.frame:
            return
        if target in self.kept:
            return self.clear(page)
        self.clear(target)
        frame = self.frame.pop(page)
        self.frame[target] = frame
        for group in [g for g, b in self.part.items() if frame != SINGLE and b == frame // self.size]:
            del self.part[group]
            self.count["split"] += 1


class Capture:
    """What a snapshot says of its pages and frames."""

    def __init__(self, snapshot):
        self.snapshot, self.host = snapshot, Dimension(snapshot.host, 0)
        small = [(a >> 12, f) for _, level, a, f in leaves(snapshot.guest) if level == 1]
        self.users = Counter(frame for _, frame in small)
        self.huge = set()
        for _, level, address, frame in leaves(snapshot.guest):
            if level > 1:
                self.huge.add((level, address >> (3 + 9 * level)))
                self.users.update({frame + k: 2 for k in range(512 ** (level - 1))})
        self.users.update({int(frame): 2 for frame in snapshot.guest.frame})
        self.frame = {
            page: frame
            for page, frame in small
            if self.served(page) and self.users[frame] == 1 and self.node(frame) is not None
        }
        self.kept = {page for page, _ in small} - set(self.frame)

    def served(self, page):
        vma = vma_of(self.snapshot, page << 12)
        if vma == len(self.snapshot.vmas):
            return True
        name, row = self.snapshot.vma_names[vma], self.snapshot.vmas[vma]
        anonymous = name == "" or name.startswith(("[heap]", "[stack", "[anon"))
        return anonymous and not row["shared"] and not row["emulator"]

    def small(self, page):
        return all((level, page >> 9 * (level - 1)) not in self.huge for level in (2, 3))

    def node(self, frame):
        """Node of the host table with the leaf entry of a frame, None where there is no such table."""
        level, _ = self.host.leaf(frame << 12)
        table = self.host.table(level, frame << 12)
        return None if table is None else int(self.host.tree.node[table])

    def regions(self):
        """{2 MiB region of guest memory: node} of all that the host maps."""
        found = {}
        for table in range(len(self.host.tree)):
            if self.host.tree.level[table] == 1:
                found[int(self.host.tree.base[table]) >> 21] = int(self.host.tree.node[table])
        for table, level, address, _ in leaves(self.host.tree):
            if level > 1:
                for k in range(512 ** (level - 2)):
                    found.setdefault((address >> 21) + k, int(self.host.tree.node[table]))
        return found

    def pools(self, size):
        """({node: blocks} that no page uses that must stay, the first block of the lowest region)."""
        mine, regions, per = set(self.frame.values()), self.regions(), 512 // size
        taken = {frame // size for frame, users in self.users.items() if users and frame not in mine}
        found = {node: [] for node in regions.values()}
        for region in sorted(regions):
            blocks = range(region * per, (region + 1) * per)
            found[regions[region]] += [block for block in blocks if block not in taken]
        return found, min(regions) * per


def ptemagnet(snapshot, walks, steps, premapped, size, limit):
    """({page: frame} of the pages served, Counter as kernels.reshape.COUNTS, [unused frames by walk]).

    walks  page numbers; steps [(before walk, kind, first page, pages, target)]; premapped {page}
    """
    capture = Capture(snapshot)
    faulting = {p for p in walks if capture.small(p) and p not in capture.kept and capture.served(p)}
    early = sorted(page for page in capture.frame if page not in faulting - premapped)
    guest = Guest(*capture.pools(size), capture.node, size, limit, set(capture.kept))
    for page in early:
        guest.fault(page, capture.frame[page])
    unused, steps = [], list(steps)
    for number, page in enumerate(walks):
        while steps and steps[0][0] <= number:
            carry_out(steps.pop(0), guest, capture)
        if page in faulting and page not in guest.frame:
            guest.fault(page, capture.frame.get(page))
        unused.append(guest.unused())
    guest.count.update(live=len(guest.part), unused=guest.unused(), mapped=len(guest.frame))
    counts = Counter(guest.count)
    for page in sorted(capture.frame):
        if page not in guest.frame:
            guest.fault(page, capture.frame[page])
    return settled(guest, capture), counts, unused


def carry_out(step, guest, capture):
    _, kind, first, pages, target = step
    for k in range(pages):
        if kind == CLEAR:
            guest.clear(first + k)
        elif kind == MOVE:
            if not capture.served(target + k):
                guest.kept.add(target + k)
            guest.move(first + k, target + k)


def settled(guest, capture):
    """Frames of the captured pages; those without a block get their own or the lowest that is left."""
    frames = {page: guest.frame[page] for page in capture.frame}
    taken = {frame for frame in frames.values() if frame != SINGLE}
    pending = [page for page in sorted(frames) if frames[page] == SINGLE]
    later = []
    for page in pending:
        own = capture.frame[page]
        if own in taken:
            later.append(page)
        else:
            frames[page] = own
            taken.add(own)
    return {**frames, **dict(zip(later, sorted(set(capture.frame.values()) - taken), strict=False))}
