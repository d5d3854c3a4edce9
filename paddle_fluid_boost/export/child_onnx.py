"""The ONNX work of an export, in a process of its own, which may crash.

``python child_onnx.py convert MODEL PARAMS OUT OPSET``: Paddle2ONNX, without its own optimiser.
``python child_onnx.py polish IN OUT SPEC SLIM``: names, open sizes and ranks as they should be,
shapes inferred, simplified by onnxslim where SLIM is 1, checked.  SPEC is a JSON file:
``{"inputs": {name: [size or name, ...]}, "outputs": [[name, rank], ...]}``.

This file imports nothing of the package.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def convert(model: str, params: str, target: str, opset: str) -> None:
    import paddle2onnx

    paddle2onnx.export(
        model,
        params,
        target,
        opset_version=int(opset),
        auto_upgrade_opset=True,
        enable_onnx_checker=False,
        optimize_tool=None,
    )


def polish(source: str, target: str, spec_file: str, slim: str) -> None:
    import onnx

    with open(spec_file) as file:
        spec = json.load(file)
    model = onnx.load(source)
    restore_leaky_relu(model.graph)
    name_ends(model.graph, spec)
    del model.graph.value_info[:]
    model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    if slim == "1":
        import onnxslim

        model = onnxslim.slim(model)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, target)
    opset = max(one.version for one in model.opset_import if one.domain in ("", "ai.onnx"))
    print(json.dumps({"ops": len(model.graph.node), "opset": opset}))


def name_ends(graph: Any, spec: dict[str, Any]) -> None:
    """Open sizes by the user's names; outputs of rank 0, which came as vectors, of rank 0."""
    from onnx import helper

    for value in graph.input:
        dims = value.type.tensor_type.shape.dim
        for dim, size in zip(dims, spec["inputs"].get(value.name, ())):
            if isinstance(size, str):
                dim.ClearField("dim_value")
                dim.dim_param = size
            else:
                dim.dim_value = size
    for value, (name, rank) in zip(list(graph.output), spec["outputs"]):
        shape = value.type.tensor_type.shape
        del shape.dim[:]
        if rank:
            # Sizes are inferred; where they cannot be, any.
            for axis in range(rank):
                shape.dim.add().dim_param = f"{name}_{axis}"
            continue
        inner = f"{value.name}_as_vector"
        for node in graph.node:
            for number, output in enumerate(node.output):
                if output == value.name:
                    node.output[number] = inner
            for number, operand in enumerate(node.input):
                if operand == value.name:
                    node.input[number] = inner
        empty = helper.make_tensor(f"{value.name}_rank0", 7, [0], [])
        graph.initializer.append(empty)
        graph.node.append(helper.make_node("Reshape", [inner, empty.name], [value.name]))


def restore_leaky_relu(graph: Any) -> None:
    """PRelu with a single constant slope is LeakyRelu, which runtimes fuse."""
    import numpy
    from onnx import helper, numpy_helper

    constants = {one.name: one for one in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value":
                    constants[node.output[0]] = attribute.t
    kept = {node.output[0]: node for node in graph.node}
    for node in graph.node:
        if node.op_type != "PRelu":
            continue
        name = node.input[1]
        while name in kept and kept[name].op_type in ("Reshape", "Unsqueeze", "Identity"):
            name = kept[name].input[0]
        if name not in constants:
            continue
        slope = numpy_helper.to_array(constants[name])
        if slope.size != 1:
            continue
        node.op_type = "LeakyRelu"
        del node.input[1]
        node.attribute.append(helper.make_attribute("alpha", float(numpy.ravel(slope)[0])))


if __name__ == "__main__":
    {"convert": convert, "polish": polish}[sys.argv[1]](*sys.argv[2:])
