"""Looks up rows of an embedding table ONNX Runtime maps from a file, on four threads, as recommenders do.

python embeddings.py make|look-up DIRECTORY [GIB]: `make` writes the model, a gather of rows and a sum, and
its table, a sparse file; `look-up` reads a row of each page, then sums bags of random rows, which is traced.
"""

import ctypes
import sys
from pathlib import Path

import numpy as np
import onnxruntime

DIM = 16  # float32: a row is a line of the cache, as in DLRM's model of Criteo's clicks
ROWS = int(sys.argv[3] if len(sys.argv) > 3 else 1) << 24
PER_PAGE = 4096 // (4 * DIM)
BATCHES, BAGS, PER_BAG = 2, 8192, 16


def write_model(directory: Path) -> None:
    from onnx import TensorProto, helper, save_model

    with open(directory / "table.bin", "wb") as file:
        file.truncate(ROWS * DIM * 4)
    table = TensorProto(name="table", data_type=TensorProto.FLOAT, dims=[ROWS, DIM])
    table.data_location = TensorProto.EXTERNAL  # larger than a page: mapped, not read
    for key, value in {"location": "table.bin", "offset": "0", "length": str(ROWS * DIM * 4)}.items():
        table.external_data.add(key=key, value=value)
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("ReduceSum", ["rows", "axis"], ["bags"], keepdims=0),
    ]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["bags", "rows"])
    bags = helper.make_tensor_value_info("bags", TensorProto.FLOAT, ["bags", DIM])
    axis = helper.make_tensor("axis", TensorProto.INT64, [1], [1])
    graph = helper.make_graph(nodes, "embeddings", [ids], [bags], [table, axis])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    save_model(model, str(directory / "model.onnx"))


def look_up(directory: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(str(directory / "model.onnx"), options)
    rng = np.random.default_rng(1)

    def bags_of(ids: np.ndarray) -> None:
        session.run(None, {"ids": ids})

    for pages in np.split(rng.permutation(ROWS // PER_PAGE), ROWS // PER_PAGE // (BAGS * PER_BAG)):
        bags_of((pages * PER_PAGE).reshape(-1, PER_BAG))
    batches = [rng.integers(0, ROWS, (BAGS, PER_BAG)) for _ in range(BATCHES)]
    mark = ctypes.CDLL(None).syscall  # pintool/roi.h
    mark(0x50545401)
    for ids in batches:
        bags_of(ids)
    mark(0x50545402)


if __name__ == "__main__":
    {"make": write_model, "look-up": look_up}[sys.argv[1]](Path(sys.argv[2]))
