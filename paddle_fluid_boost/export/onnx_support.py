"""The ops that Paddle2ONNX 2.1 has a mapper for, so that others are named before it aborts.

It says itself only "Due to the unsupported operators, the conversion is aborted".
"""

from __future__ import annotations

from typing import Any

from ..errors import ExportError
from . import _paddle as pd
from .rewrites.table import source_line
from .targets import version

#: From the mappers registered in Paddle2ONNX 2.1.0, under the names that PIR uses.
_MAPPERS = """
    abs acos add any all amax_ arange argmax argmin argsort array_length array_read array_to_tensor
    array_write asin assign assign_out assign_value atan atan2 batch_norm bicubic_interp
    bilinear_interp bitwise_and bitwise_not bitwise_or bitwise_xor bmm cast ceil clip concat conv2d
    conv2d_transpose conv3d conv3d_transpose cos cosh create_array cross_entropy_with_softmax cumsum
    data deformable_conv depthwise_conv2d depthwise_conv2d_transpose dequantize_linear dist divide
    dot dropout einsum elementwise_pow elu embedding empty equal erf exp expand expand_as eye feed
    fetch fft_r2c flatten flip floor floor_divide full full_int_array full_like full_with_tensor
    gather gather_nd gaussian gelu greater_equal greater_than grid_sample group_norm hardshrink
    hardsigmoid hardswish hardtanh if increment index_put index_sample index_select instance_norm
    isfinite isinf isnan layer_norm leaky_relu less_equal less_than linear_interp linspace log log10
    log1p log2 log_softmax logical_and logical_not logical_or logical_xor logsigmoid logsumexp
    masked_select matmul max max_pool2d_with_index max_pool3d_with_index maximum mean memcpy_d2h
    meshgrid min minimum mish multiclass_nms3 multinomial multiply mv nearest_interp nonzero
    not_equal numel one_hot p_norm pad pad3d pixel_shuffle pool2d pool3d pow prelu print prod
    put_along_axis quantize_linear range reciprocal relu relu6 remainder repeat_interleave reshape
    rnn roi_align roll round rsqrt scale scatter scatter_nd_add selu set_value
    set_value_with_tensor shape shape64 share_data sigmoid sign silu sin sinh size slice softmax
    softplus softshrink softsign split split_with_num sqrt square squeeze stack strided_slice
    subtract sum swish take_along_axis tan tanh tanh_shrink temporal_shift thresholded_relu tile
    topk transpose tril trilinear_interp triu unbind unfold uniform unique unsqueeze unstack where
    while yolo_box assign_value_ select_input
"""
SUPPORTED = frozenset(_MAPPERS.split())


def refuse_unsupported(program: Any) -> None:
    """Raises ExportError that names every op without a mapper, and the user's line."""
    found: dict[str, str] = {}
    for op in pd.all_ops(program.global_block()):
        name = str(op.name())
        if not name.startswith("pd_op."):
            continue
        bare = name.split(".", 1)[1]
        if bare not in SUPPORTED and bare.rstrip("_") not in SUPPORTED:
            found.setdefault(bare, source_line(op))
    if found:
        raise ExportError(
            f"Paddle2ONNX {version('paddle2onnx')} does not know "
            + "; ".join(f"{name}{where}" for name, where in sorted(found.items()))
        )
