"""A page of printed text, read by PP-OCRv5 with its trained weights, with one added line.

    python examples/read_page.py

The page is the one that scikit-image ships; see ``text_recognizer.py`` for the network.
"""

from __future__ import annotations

import difflib
import time

import paddle
from text_recognizer import TextRecognizer, decode, line_to_input, load_recognizer, text_lines

#: What is printed on the lines of the page that are whole.
PRINTED = [
    "Region-based segmentation",
    "Let us first determine markers of the coins and the",
    "background. These markers are pixels that we can label",
    "unambiguously as either object or background. Here,",
    "the markers are found at the two extreme parts of the",
    "histogram of grey values:",
    ">>> markers = np.zeros_like(coins)",
]

#: Lines are filled up to this width, so that the network meets one shape only.
WIDTH = 832


def page_inputs() -> list[paddle.Tensor]:
    """The lines of the page, each float32 [1, 3, 48, WIDTH]."""
    from skimage import data

    return [line_to_input(line, WIDTH) for line in text_lines(data.page())]


def agreement(read: list[str], printed: list[str] | None = None) -> float:
    """Share of characters that agree with what is printed, 0 to 1."""
    got, want = "\n".join(read), "\n".join(printed or PRINTED)
    return difflib.SequenceMatcher(None, got, want, autojunk=False).ratio()


def read(net: TextRecognizer, lines: list[paddle.Tensor], characters: list[str]) -> list[str]:
    with paddle.no_grad():
        return [decode(net(line), characters) for line in lines]


def main() -> None:
    import paddle_fluid_boost as pfb

    net, characters = load_recognizer()
    net = pfb.to_static(net)  # <- the one added line
    lines = page_inputs()
    for number in range(12):
        start = time.perf_counter()
        text = read(net, lines, characters)
        seconds = time.perf_counter() - start
        print(f"page {number + 1:2}: {seconds * 1e3:6.0f} ms, {agreement(text):.1%} of it right")
    print("\n".join(["", *text, ""]))
    print(pfb.explain(net))


if __name__ == "__main__":
    main()
