"""Keep a number out of vectors: LLVM would take a vector apart again for each look-up in a table of bytes."""

from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

U64 = ir.IntType(64)


@intrinsic
def _scalar(context, number):
    """The number, by way of an empty piece of assembly of which LLVM knows nothing."""

    def generate(context, builder, signature, arguments):
        same = ir.InlineAsm(ir.FunctionType(U64, [U64]), "", "=r,0")
        return builder.call(same, arguments)

    return types.uint64(types.uint64), generate


def _itself(number):
    return number


scalar = _itself if config.DISABLE_JIT else _scalar
