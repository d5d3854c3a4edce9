"""``explain(...).to_html()``: the whole report as one page."""

from __future__ import annotations

import sys

import paddle
import pytest

import paddle_fluid_boost as pfb
from paddle_fluid_boost.errors import ReportError
from paddle_fluid_boost.options import override


class Odd(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = paddle.nn.Linear(16, 16)

    def forward(self, x):
        print("<b>&")
        return self.linear(x)


def _explained(net, **how):
    with override(sync=True, hot_calls=1, min_gain=0), paddle.no_grad():
        fast = pfb.to_static(net)
        fast.eval()
        for _ in range(4):
            fast(paddle.ones([2, 16]))
        return pfb.explain(fast, **how)


def test_a_page_names_engine_gain_and_ops():
    report = _explained(paddle.nn.Linear(16, 16), coverage=True)
    page = report.to_html()
    signature = report.signatures[0]
    assert report.state == "compiled"
    assert page.startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")
    for text in (report.name, signature.engine, f"{signature.gain:.2f}x"):
        assert text in page


def test_a_refusal_is_shown_with_its_line_escaped():
    page = _explained(Odd()).to_html()
    assert "Stays dynamic: calls print()" in page
    assert "&lt;b&gt;" in page
    assert "<b>" not in page


def test_without_jinja2_the_message_says_how_to_get_it(monkeypatch):
    report = _explained(paddle.nn.Linear(16, 16))
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ReportError, match=r"paddle-fluid-boost\[report\]"):
        report.to_html()
