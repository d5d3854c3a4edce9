"""Putting the plugin in and taking it out, warming up, and what they say to wrong input."""

from __future__ import annotations

import subprocess
import sys

import paddle
import pytest
from paddle.static import InputSpec

import paddle_fluid_boost as pfb
from paddle_fluid_boost.dispatch import hooks

nn = paddle.nn


@pytest.fixture(autouse=True)
def taken_out():
    pfb.uninstall()
    yield
    pfb.uninstall()


def small_net() -> nn.Layer:
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    net.eval()
    return net


def patched_attributes() -> dict[str, object]:
    """Everything that the plugin may patch, as it is now."""
    places = [(owner, name) for owner, name, _ in hooks.watch_patches()]
    places += [
        (nn.Layer, "__call__"),
        (type(paddle.jit.to_static(lambda x: x)).__mro__[1], "__call__"),
    ]
    return {f"{owner.__name__}.{name}": owner.__dict__.get(name) for owner, name in places}


def test_uninstall_restores_everything() -> None:
    before = patched_attributes()
    pfb.install(auto=True)
    pfb.install()
    during = patched_attributes()
    assert all(during[name] is not value for name, value in before.items())
    pfb.uninstall()
    pfb.uninstall()
    after = patched_attributes()
    assert all(after[name] is value for name, value in before.items())
    assert not pfb.installed()


def test_install_covers_names_imported_before() -> None:
    from paddle.jit import to_static  # as a script would have done long ago

    function = to_static(small_net())
    x = paddle.randn([2, 8])
    with paddle.no_grad(), pfb.override(sync=True, hot_calls=1, min_gain=0.0):
        pfb.install()
        for _ in range(5):
            function(x)
        assert pfb.explain(function).state == "compiled"


def test_auto_watches_undecorated_layers() -> None:
    net = small_net()
    x = paddle.randn([2, 8])
    with paddle.no_grad(), pfb.override(sync=True, hot_calls=1, min_gain=0.0):
        pfb.install(auto=True)
        for _ in range(5):
            net(x)
        assert pfb.explain(net).state == "compiled"


def test_parts_of_an_impure_layer_are_compiled() -> None:
    class Counting(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0
            self.backbone = small_net()

        def forward(self, x):
            self.calls += 1
            return self.backbone(x)

    net = Counting()
    net.eval()
    boosted = pfb.to_static(net)
    x = paddle.randn([2, 8])
    with paddle.no_grad(), pfb.override(sync=True, hot_calls=1, min_gain=0.0):
        for _ in range(8):
            boosted(x)
    assert net.calls == 8
    report = pfb.explain(boosted)
    assert report.state != "compiled"
    assert any("writes the attribute 'calls'" in str(refusal) for refusal in report.refusals)
    assert [part.state for part in report.parts] == ["compiled"]


def test_after_uninstall_boosted_functions_run_eagerly() -> None:
    net = pfb.to_static(small_net())
    x = paddle.randn([2, 8])
    with paddle.no_grad(), pfb.override(sync=True, hot_calls=1, min_gain=0.0):
        for _ in range(5):
            net(x)
        pfb.uninstall()
        net[0].weight.set_value(paddle.zeros_like(net[0].weight))  # nobody watches this
        assert float((net(x) - net[2](paddle.nn.functional.relu(net[0](x)))).abs().max()) < 1e-6


def test_warmup_compiles_ahead() -> None:
    net = small_net()
    report = pfb.warmup(net, [InputSpec([4, 8], "float32")])
    assert report.state in ("compiled", "dynamic")
    with pfb.override(min_gain=0.0):
        report = pfb.warmup(small_net(), [[paddle.ones([2, 8])], [InputSpec([3, 8], "float32")]])
    assert report.state == "compiled"
    assert len(report.signatures) == 2


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        ([], "non-empty list"),
        ([InputSpec([None, 8], "float32")], "leaves a size open"),
        ([InputSpec([2, 9], "float32")], "cannot be called with"),
        ([object()], "cannot be part of a signature"),
    ],
)
def test_warmup_says_what_is_wrong(specs, message) -> None:
    with pytest.raises(pfb.SpecError, match=message):
        pfb.warmup(small_net(), specs)


def test_wrong_targets_are_named() -> None:
    with pytest.raises(TypeError, match=r"must be a paddle\.nn\.Layer"):
        pfb.explain(3)
    with pytest.raises(TypeError, match=r"must be a paddle\.nn\.Layer"):
        pfb.warmup("net", [paddle.ones([2])])
    with pytest.raises(TypeError, match="'auto' must be a bool"):
        pfb.install(auto="yes")


def test_unknown_engine_is_an_option_error() -> None:
    with pytest.raises(pfb.OptionError, match="unknown engine 'turbo'"):
        pfb.configure(engines="turbo")


def test_missing_paddle_is_a_clear_message() -> None:
    program = (
        "import sys; sys.modules['paddle'] = None\n"
        "try:\n    import paddle_fluid_boost\n"
        "except ImportError as error:\n    print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.startswith("UnsupportedPaddleError PaddlePaddle is not installed")
