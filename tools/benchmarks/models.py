"""The networks that are measured, each with an input; weights are random but always the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import networks_text as text
import networks_vision as vision
import numpy as np
import paddle
from paddle import nn


@dataclass(frozen=True)
class Recipe:
    """what: for tables.  build: makes the network.  shape: of one sample of its input.

    vocabulary: ids below it are the input, else it is an image or a sequence of vectors.
    """

    what: str
    build: Callable[[], nn.Layer]
    shape: tuple[int, ...]
    vocabulary: int = 0


def _of_paddle(name: str, what: str) -> Recipe:
    def build() -> nn.Layer:
        return getattr(paddle.vision.models, name)(pretrained=False)

    return Recipe(what, build, (3, 224, 224))


ZOO = {
    "resnet18": _of_paddle("resnet18", "ResNet-18, 224 px"),
    "resnet50": _of_paddle("resnet50", "ResNet-50, 224 px"),
    "mobilenet_v3_small": _of_paddle("mobilenet_v3_small", "MobileNetV3-small, 224 px"),
    "shufflenet_v2": _of_paddle("shufflenet_v2_x1_0", "ShuffleNetV2 1.0, 224 px"),
    "densenet121": _of_paddle("densenet121", "DenseNet-121, 224 px"),
    "text_detector": Recipe(
        "text detector as PP-OCR's (DB), 320 px", vision.TextDetector, (3, 320, 320)
    ),
    "object_detector": Recipe("YOLO-like detector, 320 px", vision.ObjectDetector, (3, 320, 320)),
    "segmenter": Recipe("U-Net, 192 px", vision.Segmenter, (3, 192, 192)),
    "crnn": Recipe("text recogniser, convolutions and BiLSTM, 32x320", text.Crnn, (3, 32, 320)),
    "svtr": Recipe("text recogniser, SVTR tiny, 32x160", text.Svtr, (3, 32, 160)),
    "encoder4": Recipe(
        "transformer encoder, 4 layers, d=256, L=128", lambda: text.Encoder(4), (128,), 30522
    ),
    "encoder12": Recipe(
        "transformer encoder, 12 layers, d=256, L=128", lambda: text.Encoder(12), (128,), 30522
    ),
    "bert": Recipe("BERT/ERNIE-tiny with mask, 4 layers, d=312, L=128", text.Bert, (128,), 21128),
    "gpt": Recipe("GPT-like decoder, 6 layers, d=256, L=128", text.Gpt, (128,), 8000),
    "lstm": Recipe("LSTM, 2 layers of 128, 50 steps", text.Recurrent, (50, 64)),
    "tagger": Recipe("BiGRU tagger, 2 layers of 128, 40 tokens", text.Tagger, (40,), 20000),
}


def build(name: str, batch: int = 1) -> tuple[nn.Layer, paddle.Tensor]:
    """The network in eval mode, its batch norms with statistics of their own, and one input.

    Raises:
        KeyError: there is no network of that name.
    """
    recipe = ZOO[name]
    paddle.seed(0)
    random = np.random.RandomState(0)
    net = recipe.build()
    net.eval()
    for layer in net.sublayers():
        if isinstance(layer, nn.BatchNorm2D):
            count = layer._mean.shape
            layer._mean.set_value(random.uniform(-0.1, 0.1, count).astype("float32"))
            layer._variance.set_value(random.uniform(0.5, 1.5, count).astype("float32"))
    shape = (batch, *recipe.shape)
    if recipe.vocabulary:
        data = random.randint(1, recipe.vocabulary, shape).astype("int64")
    else:
        data = random.randn(*shape).astype("float32")
    return net, paddle.to_tensor(data)
