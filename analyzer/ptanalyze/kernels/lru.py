"""Arrays with LRU replacement: sets, their rows, and the TLBs that are made of them.

Set-associative arrays with true LRU whose sets are touched as vectors: TLBs, and the caches of walks.

A set holds the most recently used tag first and begins on a row of 4, 16 or a multiple of 16 tags, EMPTY
beyond its ways, so that a few vector instructions find a tag and shift the others: no branch depends on where
among 16 tags it was.

Touches in, TLB misses out: split first-level arrays by page size over a second level, true LRU, per CPU.

The set is always that of the real page number. Tags are dense page numbers (region id << 9 |
slot; a huge page's tag is its first touched region's, slot 0): no region has entries of two sizes, so that
tags of several sizes may share an array. `filter_common` takes the shape of x86 cores whose 4 KiB pages have
at most 512 sets of up to 16 ways, a power of two, at both levels: the low bits of a dense number select the
right set, too. `filter_any` takes every other shape. Both touch sets as vectors (kernels.lru).
"""

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from .jit import called_hook, hook, kernel

# Tags have 32 bits. The caller chooses the set, so the number of sets need not be a power of two.

EMPTY = np.uint32(0xFFFFFFFF)
NEVER = np.uint32(0xFFFFFFFE)  # a tag that is never looked up: its way is not empty


@hook
def drop(tags, first, ways, tag):
    """Remove `tag` from the set if it is there; the rest keeps its order."""
    passed = False
    for way in range(first, first + ways):
        passed = passed or tags[way] == tag
        if passed:
            tags[way] = tags[way + 1] if way + 1 < first + ways else EMPTY


I1, I32, I128 = ir.IntType(1), ir.IntType(32), ir.IntType(128)
ROWS = 4, 16
MASK = (1 << 64) - 1
START, SETS, WAYS, ROW, RECIPROCAL = range(5)


class RowBank(NamedTuple):
    """Arrays 0..k-1 of each owner, in order.

    tags    uint32[owners * stride]  set s of array k of owner o starts at o * stride + START + s * ROW
    shape   int64[k, 5]              START, SETS, WAYS, ROW; an array that the machine lacks has WAYS 0:
                                     everything misses it. RECIPROCAL: 2^64 / SETS, rounded up
    """

    tags: np.ndarray
    stride: int
    shape: np.ndarray


def row_bank(owners, arrays, rows=ROWS):
    """An empty RowBank; `arrays` are (sets, ways), or None for a missing array.

    rows  what ROW may be, besides multiples of the last
    """
    sets = np.array([array[0] if array else 1 for array in arrays], np.int64)
    ways = np.array([array[1] if array else 0 for array in arrays], np.int64)
    row = -(-ways // rows[-1]) * rows[-1]
    for fewer in reversed(rows):
        row[(ways > 0) & (ways <= fewer)] = fewer
    end = np.cumsum(sets * row)
    stride = int(end[-1]) if len(end) else 0
    reciprocal = np.array([(1 << 64) // int(of) + ((1 << 64) % int(of) > 0) & MASK for of in sets], np.uint64)
    shape = np.stack([end - sets * row, sets, ways, row, reciprocal.view(np.int64)], axis=1)
    room = np.full(owners * stride + 16, EMPTY, np.uint32)
    first = -room.ctypes.data % 64 // 4  # rows of 16 are cache lines
    return RowBank(room[first : first + owners * stride], stride, shape)


@hook
def find(bank, owner, array, index, tag):
    """True if `tag` was in the set of `index`, now its most recent; on a miss the last goes."""
    row, ways = bank.shape[np.uint64(array), ROW], np.uint32(bank.shape[np.uint64(array), WAYS])
    return touch_row(bank.tags, row, ways, row_of(bank, owner, array, index), tag)


@hook
def row_of(bank, owner, array, index):
    """uint64: first position in `tags` of the set of `index`."""
    number, array = np.uint64(index), np.uint64(array)
    of = np.uint64(bank.shape[array, SETS])
    number = number & (of - np.uint64(1)) if of & (of - np.uint64(1)) == 0 else number % of
    first = np.uint64(owner * bank.stride + bank.shape[array, START])
    return first + number * np.uint64(bank.shape[array, ROW])


@hook
def shape_of(bank, array):
    """(stride, start, sets, ways, row, reciprocal) of an array: what a loop over lines loads once."""
    sets, first = np.uint64(bank.shape[array, SETS]), np.uint64(bank.shape[array, START])
    ways, row = np.uint32(bank.shape[array, WAYS]), bank.shape[array, ROW]
    return np.uint64(bank.stride), first, sets, ways, row, np.uint64(bank.shape[array, RECIPROCAL])


@hook
def line_row(shape, owner, line):
    """`row_of` a line (uint32)."""
    stride, start, sets, _, row, reciprocal = shape
    number = remainder(np.uint64(line), reciprocal, sets)
    return np.uint64(owner) * stride + start + number * np.uint64(row)


@hook
def llc_row(shape, owner, line):
    """`row_of` a line (uint32) in an LLC, whose slices are chosen by a hash of all bits of an address.

    (Maurice, Le Scouarnec, Neumann, Heen and Francillon, RAID 2015.) Here it spreads lines of a table evenly
    and tables, at whatever stride, as chance has it.
    """
    stride, start, sets, _, row, _ = shape
    spread = (np.uint64(line) ^ np.uint64(line) >> np.uint64(6)) * np.uint64(0x9E3779B1)
    number = (spread & np.uint64(0xFFFFFFFF)) * sets >> np.uint64(32)
    return np.uint64(owner) * stride + start + number * np.uint64(row)


@hook
def touch_row(tags, row, ways, first, tag):
    """True if the set that begins at `first` holds `tag`, now its most recent; on a miss the last goes."""
    if row == 4:
        return touch_4(tags, first, ways, tag)
    if row == 16:
        return touch_16(tags, first, ways, tag)
    return depth_in_row(tags, row, ways, first, tag) < ways


@hook
def touch_line(tags, shape, first, line):
    return touch_row(tags, shape[4], shape[3], first, line)


@hook
def within(shape, owner, first):
    """uint64: how far behind its owner's first set one that begins at `first` is: its number times ROW."""
    return first - np.uint64(owner) * shape[0] - shape[1]


@hook
def depth_in_row(tags, row, ways, first, tag):
    """uint32: how many tags of the set that begins at `first` were more recent than `tag`, which is now the
    most recent; at least `ways`: it was not there, and the last goes.

    A cache of the same sets with fewer ways has those tags that are less deep (Mattson, Gecsei, Slutz and
    Traiger, IBM Systems Journal 9, 1970).
    """
    carried, depth = tag, np.uint32(0)
    while ways > 16:
        last = tags[first + np.uint64(15)]
        at = push_depth_16(tags, first, np.uint32(16), tag, carried)
        if at < 16:
            return depth + at
        depth, ways = depth + np.uint32(16), np.uint32(ways - np.uint32(16))
        if last == EMPTY:  # and so is all that follows
            return depth + ways
        carried, first = last, first + np.uint64(16)
    if ways == 0:
        return depth
    if row == 4:
        return push_depth_4(tags, first, ways, tag, carried)
    return depth + push_depth_16(tags, first, ways, tag, carried)


@intrinsic
def _remainder(context, number, reciprocal, divisor):
    """number % divisor, both below 2^32, by two products (Lemire, Kaser and Kurz 2019)."""

    def generate(context, builder, signature, arguments):
        number, reciprocal, divisor = arguments
        low = builder.zext(builder.mul(number, reciprocal), I128)
        high = builder.lshr(builder.mul(low, builder.zext(divisor, I128)), I128(64))
        return builder.trunc(high, ir.IntType(64))

    return types.uint64(types.uint64, types.uint64, types.uint64), generate


remainder = (lambda number, _, divisor: number % divisor) if config.DISABLE_JIT else _remainder


def touch_vector(row):
    """touch_row for sets that begin on a row of `row` tags; 0 < ways <= row."""

    @intrinsic
    def touch_row(context, tags, first, ways, tag):
        return types.boolean(tags, types.uint64, types.uint32, types.uint32), _touch_row(row)

    return touch_row


def push_vector(row):
    """Do what touch_vector does for a part of a set, which `carried` comes to and not the tag.

    It says how many tags were before it: `row` where it was not there.
    """

    @intrinsic
    def push_row(context, tags, first, ways, tag, carried):
        return types.uint32(tags, types.uint64, *[types.uint32] * 3), _touch_row(row)

    return push_row


def _touch_row(row):
    """Code generator: the lanes up to the tag, or the last way, move up by one; what is carried goes first.

    Which lanes move is a mask from memory: of a comparison LLVM would make a masked store, whose bytes no
    later load can have before they are in the cache.
    """
    vector, lanes = ir.VectorType(I32, row), list(range(row))
    constant = lambda values: ir.Constant(vector, values)  # noqa: E731

    def generate(context, builder, signature, arguments):
        tags, first, ways, tag, *carried = arguments
        data = context.make_array(signature.args[0])(context, builder, tags).data
        at = builder.bitcast(builder.gep(data, [first]), vector.as_pointer())

        def everywhere(value):
            alone = builder.insert_element(constant(ir.Undefined), value, I32(0))
            return builder.shuffle_vector(alone, constant(ir.Undefined), constant([0] * row))

        tagged = everywhere(tag)
        old = builder.load(at, align=4)
        equal = builder.bitcast(builder.icmp_unsigned("==", old, tagged), ir.IntType(row))
        last = builder.shl(I32(1), builder.sub(ways, I32(1)))
        where = builder.cttz(builder.or_(builder.zext(equal, I32), last), I1(1))
        moved_in = everywhere(*carried) if carried else tagged
        shifted = builder.shuffle_vector(old, moved_in, constant([row, *lanes[:-1]]))
        window = cgutils.global_constant(
            builder, "moves", ir.Constant(ir.ArrayType(I32, 2 * row), [-1] * row + [0] * row)
        )
        moves = builder.gep(window, [I32(0), builder.sub(I32(row - 1), where)])
        moves = builder.load(builder.bitcast(moves, vector.as_pointer()), align=4)
        changed = builder.and_(builder.xor(old, shifted), moves)
        builder.store(builder.xor(old, changed), at, align=4)
        if carried:
            return builder.cttz(builder.or_(builder.zext(equal, I32), I32(1 << row)), I1(1))
        return builder.icmp_unsigned("!=", equal, ir.IntType(row)(0))

    return generate


def depth_in_plain_row(tags, row, ways, first, tag):
    held = tags[first : first + ways].tolist()
    depth = held.index(tag) if tag in held else ways
    tags[first + 1 : first + min(depth + 1, ways)] = held[: min(depth, max(ways, 1) - 1)]
    tags[first : first + min(ways, 1)] = tag
    return depth


def touch_plain_row(tags, first, ways, tag):
    return depth_in_plain_row(tags, 0, ways, first, tag) < ways


push_depth_4, push_depth_16 = map(push_vector, ROWS)
if config.DISABLE_JIT:
    touch_4 = touch_16 = touch_plain_row
    depth_in_row = depth_in_plain_row
else:
    touch_4, touch_16 = map(touch_vector, ROWS)


# Ask for memory before it is needed: independent misses of a loop overlap.

LLVM_I32, POINTER = ir.IntType(32), ir.IntType(8).as_pointer()
FOR_WRITING, KEEP, DATA = LLVM_I32(1), LLVM_I32(3), LLVM_I32(1)


@intrinsic
def _prefetch(context, array, index):
    def generate(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        function = ir.FunctionType(ir.VoidType(), [POINTER, LLVM_I32, LLVM_I32, LLVM_I32])
        function = builder.module.declare_intrinsic("llvm.prefetch", (POINTER,), function)
        at = builder.bitcast(builder.gep(data, [arguments[1]]), POINTER)
        builder.call(function, [at, FOR_WRITING, KEEP, DATA])
        return context.get_dummy_value()

    return types.void(array, types.uint64), generate


prefetch = (lambda array, index: None) if config.DISABLE_JIT else _prefetch


L1_4K, L1_2M, L1_1G, L2, L2_1G, NO_ARRAY = range(6)  # arrays of State.rows
TAGS = 16  # in each row of a 4 KiB page's arrays, of filter_common


class Pages(NamedTuple):
    """Page sizes of regions, by region id."""

    va: np.ndarray  # uint64[R]  address >> 21
    size: np.ndarray  # uint8[R]  1, 2, 3: 4 KiB, 2 MiB, 1 GiB
    gig: np.ndarray  # uint32[R]  first touched region of the same GiB
    any_huge: bool  # some size is not 1


class Shootdowns(NamedTuple):
    """K invalidations, sorted by chunk. Number k drops tag[first[k] : first[k + 1]], or all entries."""

    chunk: np.ndarray  # int64[K]  before this chunk
    all: np.ndarray  # bool[K]
    first: np.ndarray  # int64[K + 1]
    tag: np.ndarray  # uint32[...]


class State(NamedTuple):
    """The TLB of a CPU."""

    level2: np.ndarray  # int64[4]: array behind pages of size 1, 2, 3
    rows: RowBank  # a single owner, arrays L1_4K ... NO_ARRAY
    done: np.ndarray  # int64[1]: shootdowns seen so far
    hits: np.ndarray  # int64[3]: touches that hit L1, hit L2, missed


@kernel
def filter_any(page, chunks, pages, shootdowns, state, missed):
    """Filter chunks of a CPU: missed[i] becomes True where touch i misses.

    page  uint32[n]: a run of the trace; chunks  int64[m, 3]: number, first touch, touches of each;
    missed  bool[n]
    """
    level2, hits = state.level2, state.hits
    va, size, gig = pages.va, pages.size, pages.gig
    for k in range(len(chunks)):
        shoot_down(chunks[k, 0], pages, shootdowns, state)
        for i in range(np.uint64(chunks[k, 1]), np.uint64(chunks[k, 1] + chunks[k, 2])):
            p = page[i]
            region = np.int64(p) >> 9
            s = np.int64(size[region])
            tag, index = p, np.uint64(np.int64(va[region]) << 9 | np.int64(p) & 511)
            if s == 2:
                tag, index = np.uint32(region << 9), va[region]
            elif s == 3:
                tag, index = np.uint32(np.int64(gig[region]) << 9), va[region] >> np.uint64(9)
            hit = 2
            for level, a in enumerate((s - 1, level2[s])):
                if find(state.rows, 0, a, index, tag):
                    hit = level
                    break
            hits[hit] += 1
            missed[i] = hit == 2


@kernel
def filter_common(page, chunks, pages, shootdowns, state, missed):
    """Do what filter_any does, for shapes that `is_common` accepts."""
    rows, one, two = state.rows.tags, place(state.rows, L1_4K), place(state.rows, L2)
    ways_one, ways_two = np.uint32(state.rows.shape[L1_4K, WAYS]), np.uint32(state.rows.shape[L2, WAYS])
    any_huge = pages.any_huge
    va, size, gig = pages.va, pages.size, pages.gig
    hit1 = hit2 = miss = 0
    for k in range(len(chunks)):
        shoot_down(chunks[k, 0], pages, shootdowns, state)
        begin, end = np.uint64(chunks[k, 1]), np.uint64(chunks[k, 1] + chunks[k, 2])
        for i in range(begin, end):
            p = page[i]
            if any_huge and size[p >> np.uint32(9)] > 1:
                region = np.int64(p) >> 9
                s = np.int64(size[region])
                number = va[region] if s == 2 else va[region] >> np.uint64(9)
                tag = np.uint32((region if s == 2 else np.int64(gig[region])) << 9)
                if find(state.rows, 0, s - 1, number, tag):
                    hit1 += 1
                    continue
                if state.level2[s] != L2:
                    if find(state.rows, 0, state.level2[s], number, tag):
                        hit2 += 1
                        continue
                    missed[i] = True
                    miss += 1
                    continue
            else:
                tag, number = p, np.uint64(p)
                if touch_16(rows, row_by_bits(one, number), ways_one, tag):
                    hit1 += 1
                    continue
            hit = touch_16(rows, row_by_bits(two, number), ways_two, tag)
            hit2 += hit
            miss += not hit
            missed[i] = not hit
    state.hits[0] += hit1
    state.hits[1] += hit2
    state.hits[2] += miss


@kernel
def shoot_down(chunk, pages, shootdowns, state):
    """Apply the shootdowns due before a chunk that this CPU has not seen yet."""
    k = state.done[0]
    while k < len(shootdowns.chunk) and shootdowns.chunk[k] <= chunk:
        if shootdowns.all[k]:
            state.rows.tags[:] = EMPTY
        else:
            for t in range(shootdowns.first[k], shootdowns.first[k + 1]):
                drop_tag(shootdowns.tag[t], pages, state)
        k += 1
    state.done[0] = k


@called_hook
def drop_tag(tag, pages, state):
    """Remove a translation from both levels."""
    region = np.int64(tag) >> 9
    s = np.int64(pages.size[region])
    index = np.uint64(np.int64(pages.va[region]) << 9 | np.int64(tag) & 511) >> np.uint64(9 * (s - 1))
    for a in (s - 1, state.level2[s]):
        drop(state.rows.tags, np.int64(row_of(state.rows, 0, a, index)), state.rows.shape[a, WAYS], tag)


@hook
def place(bank, array):
    """(START, SETS - 1) of an array with a power of two of sets: what row_by_bits takes."""
    return np.uint64(bank.shape[array, START]), np.uint64(bank.shape[array, SETS] - 1)


@hook
def row_by_bits(where, number):
    """uint64: first position of the set of `number`."""
    start, mask = where
    return start + (number & mask) * np.uint64(TAGS)


@kernel
def gather(page, write, missed, chunks, out_page, out_write, misses):
    """Touches that missed, in their order, to the start of out_page and out_write; misses[k] of chunk k.

    Arrays as in filter_any, chunks one after the other without gaps. Returns their number.
    """
    n = np.uint64(0)
    for k in range(len(chunks)):
        before = n
        for i in range(chunks[k, 1], chunks[k, 1] + chunks[k, 2]):
            out_page[n], out_write[n] = page[i], write[i]
            n += np.uint64(missed[i])
        misses[k] = np.int64(n - before)
    return np.int64(n)
