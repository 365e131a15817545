"""A model of voices that is made in a moment, and tells what it hears."""

from pathlib import Path

import onnx
from onnx import TensorProto, helper


def voices(folder: Path, *, shape: tuple[str | int, ...] = ("batch", "samples"), axis: int = 1) -> Path:
    """A model whose vector is the highest and the lowest value of what it hears, of features of each of them.

    Args:
        axis: over which they are sought; over that of features the vectors grow with the audio.
    """
    audio = helper.make_tensor_value_info("heard", TensorProto.FLOAT, shape)
    voice = helper.make_tensor_value_info("voice", TensorProto.FLOAT, ("batch", None))
    nodes = [
        helper.make_node("ReduceMax", ["heard"], ["most"], axes=[axis], keepdims=len(shape) == 2),
        helper.make_node("ReduceMin", ["heard"], ["least"], axes=[axis], keepdims=len(shape) == 2),
        helper.make_node("Concat", ["most", "least"], ["voice"], axis=1),
    ]
    graph = helper.make_graph(nodes, "voices", [audio], [voice])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    file = folder / "voices.onnx"
    onnx.save(model, str(file))
    return file
