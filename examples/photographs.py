"""Photographs through an unmodified paddle.vision network, with one added line.

    python examples/photographs.py

The photographs are those that scikit-image ships.  Pretrained weights would have to be downloaded,
so the weights are random: times and the comparison with eager are meaningful, the class numbers
are not.  (``read_page.py`` has trained weights and gives a real answer.)
"""

from __future__ import annotations

import time

import numpy as np
import paddle

MEAN = np.array([0.485, 0.456, 0.406], "float32")
STD = np.array([0.229, 0.224, 0.225], "float32")


def photographs() -> dict[str, np.ndarray]:
    """Real photographs by name, uint8 [height, width, 3]."""
    from skimage import data

    return {
        "astronaut": data.astronaut(),
        "cat": data.chelsea(),
        "coffee": data.coffee(),
        "rocket": data.rocket(),
        "retina": data.retina(),
        "galaxies": data.hubble_deep_field(),
    }


def to_input(picture: np.ndarray, side: int = 224) -> paddle.Tensor:
    """The middle square of a photograph, normalised: float32 [1, 3, side, side]."""
    from skimage.transform import resize

    height, width = picture.shape[:2]
    edge = min(height, width)
    top, left = (height - edge) // 2, (width - edge) // 2
    square = resize(picture[top : top + edge, left : left + edge], (side, side), anti_aliasing=True)
    image = (square.astype("float32") - MEAN) / STD
    return paddle.to_tensor(np.ascontiguousarray(image.transpose(2, 0, 1)[None]))


def network(name: str = "mobilenet_v3_small") -> paddle.nn.Layer:
    """An unmodified network of paddle.vision in eval mode, with random weights."""
    paddle.seed(0)
    net = getattr(paddle.vision.models, name)(pretrained=False)
    net.eval()
    return net


def main() -> None:
    import paddle_fluid_boost as pfb

    net = network()
    net = pfb.to_static(net)  # <- the one added line
    frames = [(name, to_input(picture)) for name, picture in photographs().items()]
    with paddle.no_grad():
        for number in range(120):
            name, image = frames[number % len(frames)]
            start = time.perf_counter()
            scores = net(image)
            milliseconds = (time.perf_counter() - start) * 1e3
            if number < 6 or number % 20 == 0:
                best = int(scores.argmax())
                print(f"frame {number:3}  {name:10} class {best:4}  {milliseconds:7.1f} ms")
    print(pfb.explain(net))


if __name__ == "__main__":
    main()
