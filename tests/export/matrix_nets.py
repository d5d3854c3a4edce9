"""Networks of the export matrix beside those of ``paddle.vision`` and of the benchmarks.

Each is small and written as people write such networks; what is in question is whether the kind of
network can be exported, not how fast it is.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn
from paddle.vision.ops import deform_conv2d

BENCHMARKS = Path(__file__).resolve().parents[2] / "tools" / "benchmarks"


def network(name):
    """The network called ``name``: ours, one of the benchmarks, or one of ``paddle.vision``.

    Its weights are always the same, and its batch norms have statistics of their own.
    """
    paddle.seed(0)
    random = np.random.RandomState(0)
    net = _made(name)
    net.eval()
    for layer in net.sublayers():
        if isinstance(layer, (nn.BatchNorm1D, nn.BatchNorm2D, nn.BatchNorm3D)):
            count = layer._mean.shape
            layer._mean.set_value(random.uniform(-0.1, 0.1, count).astype("float32"))
            layer._variance.set_value(random.uniform(0.5, 1.5, count).astype("float32"))
    return net


def _made(name):
    if name in NETS:
        return NETS[name]()
    if str(BENCHMARKS) not in sys.path:
        sys.path.insert(0, str(BENCHMARKS))
    from models import ZOO

    if name in ZOO:
        return ZOO[name].build()
    # Without the classifier where that alone would hold most of the weights.
    more = {"num_classes": -1} if name in ("alexnet", "vgg11") else {}
    return getattr(paddle.vision.models, name)(**more)


# -- text -----------------------------------------------------------------------------------------


class Ernie(nn.Layer):
    """Three inputs, Paddle's own encoder with a mask, a dictionary of results."""

    def __init__(self):
        super().__init__()
        self.words, self.kinds = nn.Embedding(1000, 64), nn.Embedding(2, 64)
        self.positions = nn.Embedding(128, 64)
        self.norm = nn.LayerNorm(64)
        layer = nn.TransformerEncoderLayer(64, 4, 128, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.pooler = nn.Linear(64, 64)

    def forward(self, input_ids, token_type_ids, attention_mask):
        positions = paddle.arange(input_ids.shape[1]).unsqueeze(0)
        x = self.words(input_ids) + self.kinds(token_type_ids) + self.positions(positions)
        mask = (1.0 - attention_mask.unsqueeze([1, 2])) * -1e4
        x = self.encoder(self.norm(x), mask)
        return {"sequence": x, "pooled": paddle.tanh(self.pooler(x[:, 0]))}


class Translator(nn.Layer):
    """Encoder and decoder with a causal mask, as ``nn.Transformer`` builds them."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(500, 32)
        self.transformer = nn.Transformer(32, 4, 2, 2, 64)
        self.head = nn.Linear(32, 500)

    def forward(self, source, target):
        length = target.shape[1]
        mask = paddle.tril(paddle.ones([length, length])) * 1e9 - 1e9
        y = self.transformer(self.words(source), self.words(target), tgt_mask=mask)
        return self.head(y)


class LstmTagger(nn.Layer):
    """Bidirectional LSTM over tokens; scores and the last states."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(500, 32)
        self.lstm = nn.LSTM(32, 24, direction="bidirect")
        self.tags = nn.Linear(48, 9)

    def forward(self, tokens):
        y, (hidden, _) = self.lstm(self.words(tokens))
        return self.tags(y), hidden


class LengthLstm(nn.Layer):
    """A recurrent network that is told how long each sequence is."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(16, 24)

    def forward(self, x, lengths):
        return self.lstm(x, sequence_length=lengths)[0]


class SimpleRnn(nn.Layer):
    def __init__(self):
        super().__init__()
        self.rnn = nn.SimpleRNN(16, 24)

    def forward(self, x):
        return self.rnn(x)[0]


class GreedyDecoder(nn.Layer):
    """A loop whose number of turns depends on values: generates until a sum is reached."""

    def __init__(self):
        super().__init__()
        self.step = nn.Linear(8, 8)

    def forward(self, x):
        count = paddle.zeros([1], "int64")
        while (x.abs().sum() < 100.0) and (count < 20):
            x = x + F.relu(self.step(x)) + 0.1
            count = count + 1
        return x, count


class Beams(nn.Layer):
    """One step of a beam search: the best of all beams' continuations."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, 50)

    def forward(self, states, scores):
        logits = F.log_softmax(self.head(states), axis=-1) + scores.unsqueeze(-1)
        batch = logits.shape[0]
        best, where = paddle.topk(logits.reshape([batch, -1]), 4)
        return best, where // 50, where % 50


class TextCnn(nn.Layer):
    """Convolutions of several widths over words."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(500, 32)
        self.convolutions = nn.LayerList(nn.Conv1D(32, 16, k) for k in (2, 3, 4))
        self.head = nn.Linear(48, 3)

    def forward(self, tokens):
        x = self.words(tokens).transpose([0, 2, 1])
        parts = [F.relu(conv(x)).max(axis=2) for conv in self.convolutions]
        return F.softmax(self.head(paddle.concat(parts, axis=1)))


# -- vision ---------------------------------------------------------------------------------------


class Deformable(nn.Layer):
    """Deformable convolution as in detectors; with a mask it is version 2."""

    def __init__(self, mask):
        super().__init__()
        self.stem = nn.Conv2D(3, 8, 3, padding=1)
        self.offset = nn.Conv2D(8, 18, 3, padding=1)
        self.mask = nn.Conv2D(8, 9, 3, padding=1) if mask else None
        self.weight = self.create_parameter([8, 8, 3, 3])

    def forward(self, x):
        x = F.relu(self.stem(x))
        mask = None if self.mask is None else F.sigmoid(self.mask(x))
        return deform_conv2d(x, self.offset(x) * 0.1, self.weight, padding=1, mask=mask)


class Vit(nn.Layer):
    """Patches, a class token, attention."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2D(3, 48, 8, stride=8)
        self.token = self.create_parameter([1, 1, 48])
        self.positions = self.create_parameter([1, 17, 48])
        layer = nn.TransformerEncoderLayer(48, 4, 96, activation="gelu", normalize_before=True)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(48))
        self.head = nn.Linear(48, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose([0, 2, 1])
        token = self.token.expand([x.shape[0], 1, 48])
        x = paddle.concat([token, x], axis=1) + self.positions
        return self.head(self.encoder(x)[:, 0])


class WindowAttention(nn.Layer):
    """As Swin's: shifted windows (roll), a table of relative positions."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2D(3, 32, 4, stride=4)
        self.norm = nn.LayerNorm(32)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.table = self.create_parameter([49, 2])
        at = np.stack(np.meshgrid(range(4), range(4), indexing="ij")).reshape(2, -1)
        far = (at[:, :, None] - at[:, None, :]) + 3
        self.register_buffer("index", paddle.to_tensor((far[0] * 7 + far[1]).reshape(-1)))

    def forward(self, image):
        x = self.stem(image).transpose([0, 2, 3, 1])
        batch, height, width, wide = x.shape
        y = paddle.roll(self.norm(x), [-2, -2], axis=[1, 2])
        y = y.reshape([batch, height // 4, 4, width // 4, 4, wide])
        y = y.transpose([0, 1, 3, 2, 4, 5]).reshape([-1, 16, wide])
        qkv = self.qkv(y).reshape([-1, 16, 3, 2, 16]).transpose([2, 0, 3, 1, 4])
        scores = paddle.matmul(qkv[0], qkv[1], transpose_y=True) * 0.25
        bias = self.table.index_select(self.index).reshape([16, 16, 2]).transpose([2, 0, 1])
        y = paddle.matmul(F.softmax(scores + bias), qkv[2])
        y = self.out(y.transpose([0, 2, 1, 3]).reshape([-1, 16, wide]))
        y = y.reshape([batch, height // 4, width // 4, 4, 4, wide])
        y = y.transpose([0, 1, 3, 2, 4, 5]).reshape([batch, height, width, wide])
        return x + paddle.roll(y, [2, 2], axis=[1, 2])


class ConvNext(nn.Layer):
    """Depthwise 7x7, layer norm over channels last, a learned scale."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2D(3, 32, 4, stride=4)
        self.depthwise = nn.Conv2D(32, 32, 7, padding=3, groups=32)
        self.norm, self.wide, self.narrow = nn.LayerNorm(32), nn.Linear(32, 128), nn.Linear(128, 32)
        self.scale = self.create_parameter([32])
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        x = self.stem(x)
        y = self.norm(self.depthwise(x).transpose([0, 2, 3, 1]))
        y = self.scale * self.narrow(F.gelu(self.wide(y)))
        return self.head((x + y.transpose([0, 3, 1, 2])).mean([2, 3]))


class SuperResolution(nn.Layer):
    """ESPCN: convolutions and a pixel shuffle; height and width stay open."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2D(1, 16, 5, padding=2), nn.Tanh(), nn.Conv2D(16, 9, 3, padding=1)
        )

    def forward(self, x):
        return F.sigmoid(F.pixel_shuffle(self.body(x), 3))


class StyleTransfer(nn.Layer):
    """Instance norm, reflected borders, enlarging by a factor."""

    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2D(3, 16, 3, stride=2, padding=1), nn.InstanceNorm2D(16))
        self.pad, self.up = nn.Pad2D(1, mode="reflect"), nn.Conv2D(16, 3, 3)

    def forward(self, x):
        x = F.relu(self.down(x))
        x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        return paddle.tanh(self.up(self.pad(x)))


class SpatialTransformer(nn.Layer):
    """Where to look is computed from the image: affine grid and sampling."""

    def __init__(self):
        super().__init__()
        self.conv, self.where = nn.Conv2D(3, 8, 5, stride=4), nn.Linear(8, 6)

    def forward(self, x):
        theta = self.where(F.relu(self.conv(x)).mean([2, 3])).reshape([-1, 2, 3])
        return F.grid_sample(x, F.affine_grid(theta, x.shape, align_corners=False))


class Suppressing(nn.Layer):
    """A detector's end: boxes, scores and non-maximum suppression; the result's size depends on
    values."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, 5)

    def forward(self, features):
        raw = self.head(features)
        corner, side = raw[:, :2] * 10, F.relu(raw[:, 2:4]) * 10 + 1
        boxes = paddle.concat([corner, corner + side], axis=1)
        kept = paddle.vision.ops.nms(boxes, 0.5, raw[:, 4])
        return boxes[kept]


class Rois(nn.Layer):
    """The second stage of a detector: features of regions, aligned."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2D(3, 8, 3, stride=2, padding=1), nn.Linear(8 * 9, 4)

    def forward(self, image):
        boxes = paddle.to_tensor([[0.0, 0.0, 20.0, 20.0], [4.0, 4.0, 30.0, 28.0]])
        count = paddle.to_tensor([2], "int32")
        y = paddle.vision.ops.roi_align(self.conv(image), boxes, count, 3, spatial_scale=0.5)
        return self.head(y.flatten(1))


class Video(nn.Layer):
    """Convolutions over time too."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv3D(3, 8, 3, padding=1), nn.BatchNorm3D(8), nn.ReLU(), nn.MaxPool3D(2),
            nn.Conv3D(8, 16, 3, padding=1), nn.AdaptiveAvgPool3D(1),
        )  # fmt: skip
        self.head = nn.Linear(16, 6)

    def forward(self, x):
        return self.head(self.body(x).flatten(1))


# -- sound, tables, graphs, and constructs ---------------------------------------------------------


class WaveNet(nn.Layer):
    """Dilated convolutions with gates; PReLU."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv1D(4, 16, 1)
        self.gates = nn.LayerList(
            nn.Conv1D(16, 32, 3, padding=2**k, dilation=2**k) for k in range(4)
        )
        self.act, self.last = nn.PReLU(16), nn.Conv1D(16, 2, 1)

    def forward(self, x):
        x = self.first(x)
        for gate in self.gates:
            a, b = gate(x).chunk(2, axis=1)
            x = x + paddle.tanh(a) * F.sigmoid(b)
        return self.last(self.act(x))


class Spectrum(nn.Layer):
    """A Fourier transform: complex numbers inside."""

    def forward(self, x):
        return paddle.fft.rfft(x).abs().log1p()


class DeepFm(nn.Layer):
    """Recommendation: many ids and some numbers, two ways through the network."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Embedding(400, 1), nn.Embedding(400, 8)
        self.deep = nn.Sequential(nn.Linear(10 * 8 + 4, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, ids, numbers):
        factors = self.second(ids)
        square = factors.sum(1) ** 2 - (factors**2).sum(1)
        deep = self.deep(paddle.concat([factors.flatten(1), numbers], axis=1))
        return F.sigmoid(self.first(ids).sum(1) + 0.5 * square.sum(1, keepdim=True) + deep)


class GraphNet(nn.Layer):
    """Messages along edges, summed at the nodes."""

    def __init__(self):
        super().__init__()
        self.message, self.update = nn.Linear(8, 8), nn.Linear(16, 8)

    def forward(self, nodes, source, target):
        sent = self.message(nodes).index_select(source)
        got = paddle.scatter_nd_add(paddle.zeros_like(nodes), target.unsqueeze(1), sent)
        return F.relu(self.update(paddle.concat([nodes, got], axis=1)))


class Experts(nn.Layer):
    """A mixture of experts: the two best of four, each weighed."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(16, 4)
        self.experts = nn.LayerList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, x):
        best, which = paddle.topk(F.softmax(self.gate(x)), 2)
        weights = (F.one_hot(which, 4) * best.unsqueeze(-1)).sum(1)
        outputs = paddle.stack([expert(x) for expert in self.experts], axis=1)
        return (outputs * weights.unsqueeze(-1)).sum(1)


class Branch(nn.Layer):
    """A branch on a value."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.one(x) if x.mean() > 0 else self.other(x) * 2.0


class Nested(nn.Layer):
    """Results in lists and dictionaries, one of them twice, and one that is an integer."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x, scale):
        y = F.relu(self.body(x)) * scale
        scores = self.head(y)
        return {"levels": [y, (scores, y)], "best": scores.argmax(-1)}


class Half(nn.Layer):
    """Weights kept as float16, to be smaller, and computed with as float32."""

    def __init__(self):
        super().__init__()
        weight = paddle.randn([16, 16]).astype("float16")
        self.weight = self.create_parameter(
            [16, 16], dtype="float16", default_initializer=nn.initializer.Assign(weight)
        )

    def forward(self, x):
        return F.relu(paddle.matmul(x, self.weight.astype("float32")))


class Double(nn.Layer):
    """All in float64, as in simulations."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
        self.to(dtype="float64")

    def forward(self, x):
        return self.body(x)


class AutoEncoder(nn.Layer):
    """Down and up again, the latent as a second result."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2D(1, 8, 3, stride=2, padding=1), nn.SELU(),
            nn.Conv2D(8, 4, 3, stride=2, padding=1),
        )  # fmt: skip
        self.decoder = nn.Sequential(
            nn.Conv2DTranspose(4, 8, 4, stride=2, padding=1), nn.ELU(),
            nn.Conv2DTranspose(8, 1, 4, stride=2, padding=1), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, x):
        latent = self.encoder(x)
        return self.decoder(latent), latent


class Tiny(nn.Layer):
    """Small enough for the quick tests: a convolution, a norm, an activation, a classifier."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2D(3, 8, 3), nn.BatchNorm2D(8), nn.LeakyReLU(0.1))
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.body(x).mean([2, 3]))


NETS = {
    "ernie": Ernie,
    "translator": Translator,
    "lstm_tagger": LstmTagger,
    "length_lstm": LengthLstm,
    "simple_rnn": SimpleRnn,
    "greedy_decoder": GreedyDecoder,
    "beams": Beams,
    "text_cnn": TextCnn,
    "deformable": lambda: Deformable(False),
    "deformable_v2": lambda: Deformable(True),
    "vit": Vit,
    "window_attention": WindowAttention,
    "convnext": ConvNext,
    "super_resolution": SuperResolution,
    "style_transfer": StyleTransfer,
    "spatial_transformer": SpatialTransformer,
    "suppressing": Suppressing,
    "rois": Rois,
    "video": Video,
    "wavenet": WaveNet,
    "spectrum": Spectrum,
    "deep_fm": DeepFm,
    "graph_net": GraphNet,
    "experts": Experts,
    "branch": Branch,
    "nested": Nested,
    "half": Half,
    "double": Double,
    "autoencoder": AutoEncoder,
    "tiny": Tiny,
}
