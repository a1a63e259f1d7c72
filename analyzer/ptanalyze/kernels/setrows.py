"""Set-associative arrays with true LRU whose sets are touched as a vector: the caches of walks.

As in setassoc, a set holds the most recently used tag first. Here each begins on a row of 4 or 16 tags, EMPTY
beyond its ways, so that a few vector instructions find a tag and shift the others: no branch depends on where
the tag was. Sets of more than 16 ways, rare among caches of page-table entries, go tag by tag.
"""

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from .hooks import hook
from .setassoc import EMPTY, touch

I1, I32 = ir.IntType(1), ir.IntType(32)
ROWS = 4, 16


class RowBank(NamedTuple):
    """Arrays 0..k-1 of each owner, in order.

    tags    uint32[owners * stride]  set s of array k of owner o starts at o * stride + start[k] + s * row[k]
    start, sets, ways, row  int64[k] an array that the machine lacks has ways 0: everything misses it
    """

    tags: np.ndarray
    stride: int
    start: np.ndarray
    sets: np.ndarray
    ways: np.ndarray
    row: np.ndarray


def row_bank(owners, arrays):
    """An empty RowBank; `arrays` are (sets, ways), or None for a missing array."""
    sets = np.array([array[0] if array else 1 for array in arrays], np.int64)
    ways = np.array([array[1] if array else 0 for array in arrays], np.int64)
    row = np.array([_row(way) for way in ways.tolist()], np.int64)
    end = np.cumsum(sets * row)
    stride = int(end[-1]) if len(end) else 0
    return RowBank(_aligned(owners * stride), stride, end - sets * row, sets, ways, row)


def _aligned(tags):
    """EMPTY tags whose rows of 16 are cache lines."""
    room = np.full(tags + 16, EMPTY, np.uint32)
    first = -room.ctypes.data % 64 // 4
    return room[first : first + tags]


def _row(ways):
    return next((row for row in ROWS if 0 < ways <= row), ways)


@hook
def find(bank, owner, array, index, tag):
    """True if `tag` was in the set of `index`, now its most recent; on a miss the last goes."""
    return touch_row(bank, array, row_of(bank, owner, array, index), tag)


@hook
def row_of(bank, owner, array, index):
    """uint64: first position in `tags` of the set of `index`."""
    number, of = np.uint64(index), np.uint64(bank.sets[array])
    number = number & (of - np.uint64(1)) if of & (of - np.uint64(1)) == 0 else number % of
    return np.uint64(owner * bank.stride + bank.start[array]) + number * np.uint64(bank.row[array])


@hook
def touch_row(bank, array, first, tag):
    """setassoc.touch of the set that begins at `first`."""
    row, ways = bank.row[array], bank.ways[array]
    if row == 4:
        return touch_4(bank.tags, first, np.uint32(ways), tag)
    if row == 16:
        return touch_16(bank.tags, first, np.uint32(ways), tag)
    return touch(bank.tags, first, ways, tag)


def touch_vector(row):
    """setassoc.touch for sets that begin on a row of `row` tags; 0 < ways <= row."""

    @intrinsic
    def touch_row(context, tags, first, ways, tag):
        return types.boolean(tags, types.uint64, types.uint32, types.uint32), _touch_row(row)

    return touch_row


def _touch_row(row):
    """Code generator: the lanes up to the tag, or the last way, move up by one; the tag goes first.

    Which lanes move is a mask from memory: of a comparison LLVM would make a masked store, whose bytes no
    later load can have before they are in the cache.
    """
    vector, lanes = ir.VectorType(I32, row), list(range(row))
    constant = lambda values: ir.Constant(vector, values)  # noqa: E731

    def generate(context, builder, signature, arguments):
        tags, first, ways, tag = arguments
        data = context.make_array(signature.args[0])(context, builder, tags).data
        at = builder.bitcast(builder.gep(data, [first]), vector.as_pointer())
        everywhere = builder.shuffle_vector(
            builder.insert_element(constant(ir.Undefined), tag, I32(0)),
            constant(ir.Undefined),
            constant([0] * row),
        )
        old = builder.load(at, align=4)
        equal = builder.bitcast(builder.icmp_unsigned("==", old, everywhere), ir.IntType(row))
        last = builder.shl(I32(1), builder.sub(ways, I32(1)))
        where = builder.cttz(builder.or_(builder.zext(equal, I32), last), I1(1))
        shifted = builder.shuffle_vector(old, everywhere, constant([row, *lanes[:-1]]))
        window = cgutils.global_constant(
            builder, "moves", ir.Constant(ir.ArrayType(I32, 2 * row), [-1] * row + [0] * row)
        )
        moves = builder.gep(window, [I32(0), builder.sub(I32(row - 1), where)])
        moves = builder.load(builder.bitcast(moves, vector.as_pointer()), align=4)
        changed = builder.and_(builder.xor(old, shifted), moves)
        builder.store(builder.xor(old, changed), at, align=4)
        return builder.icmp_unsigned("!=", equal, ir.IntType(row)(0))

    return generate


touch_4, touch_16 = (touch, touch) if config.DISABLE_JIT else map(touch_vector, ROWS)
