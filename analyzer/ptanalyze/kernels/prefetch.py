"""Ask for memory before it is needed: independent misses of a loop overlap."""

from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

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


def _nothing(array, index):
    pass


prefetch = _nothing if config.DISABLE_JIT else _prefetch
