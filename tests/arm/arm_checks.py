"""What is asked of an ARM processor, real or emulated; ``tools/test-arm`` runs it, CI does not.

Environment: ``PFB_ARM_CPU`` the model that is emulated, ``PFB_ARM_BUNDLES`` where ``arm_nets.py``
put the bundles made on x86.
"""

from __future__ import annotations

import os
import platform

import arm_nets
import numpy as np
import paddle
import pytest

import paddle_fluid_boost as pfb
from paddle_fluid_boost.capture.lock import STATIC_LOCK
from paddle_fluid_boost.engines import _paddle as engines_paddle
from paddle_fluid_boost.engines import registry
from paddle_fluid_boost.hardware.advice import cpu_advice, most_threads
from paddle_fluid_boost.hardware.probe import probe
from paddle_fluid_boost.memory import library, paddle_tensors
from paddle_fluid_boost.options import override

CPU = os.environ["PFB_ARM_CPU"]
BUNDLES = os.environ["PFB_ARM_BUNDLES"]
#: Model of qemu -> (micro-architecture, features it must have, and must not have); "max" is no
#: processor that was ever made.
CPUS = {
    "cortex-a53": ("cortex_a53", {"asimd"}, {"asimddp", "sve", "i8mm"}),
    "cortex-a72": ("cortex_a72", {"asimd"}, {"asimddp", "sve", "i8mm"}),
    "cortex-a76": ("cortex_a76", {"asimd", "asimddp", "asimdhp"}, {"sve", "i8mm"}),
    "neoverse-n1": ("neoverse_n1", {"asimd", "asimddp", "asimdhp"}, {"sve", "i8mm"}),
    "a64fx": ("a64fx", {"asimd", "sve"}, {"i8mm", "sve2"}),
    "max": ("", {"asimd", "asimddp", "sve", "sve2", "i8mm", "bf16"}, set()),
}


def assert_close(got, want):
    assert len(got) == len(want)
    for one, other in zip(got, want):
        assert one.shape == other.shape and one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-4 * np.abs(other).max())


# -- on every model of processor ----------------------------------------------------------------


def test_cpu_is_recognised():
    cpu = probe().cpu
    core, features, others = CPUS[CPU]
    assert platform.machine() == cpu.architecture == "aarch64"
    assert cpu.microarchitecture == core or CPU == "max"
    assert features <= set(cpu.features) and not others & set(cpu.features)
    assert most_threads() >= 1


def test_cpu_gets_the_librarys_advice():
    advice = cpu_advice()
    cpu = probe().cpu
    assert "ARM with NEON" in advice.families
    assert registry.engine_names()[:2] == ["onnxruntime", "paddle_inference"]
    assert ("bfloat16" in advice.pays()) == ("bf16" in cpu.features)


def test_cpu_computes_the_same_in_onnx_runtime():
    """ONNX Runtime takes other kernels where a processor has dot products or matrix products."""
    STATIC_LOCK.open()
    net, data = arm_nets.make("images")
    assert_close(_built("onnxruntime", net, data), arm_nets.run(net, data))


# -- once ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["onnxruntime", "paddle_inference"])
@pytest.mark.parametrize("name", arm_nets.NETS)
def test_engine(engine, name):
    STATIC_LOCK.open()
    net, data = arm_nets.make(name)
    assert_close(_built(engine, net, data), arm_nets.run(net, data))


def _built(engine, net, data):
    from paddle_fluid_boost.capture.trace import trace

    x = paddle.to_tensor(data)
    with paddle.no_grad():
        captured, _ = trace(net, [x], {})
    made = registry.make_engine(engine)
    assert made.unavailable() is None
    executable = made.build(captured, made.candidates(captured)[0])
    return [tensor.numpy() for tensor in executable([x])]


def test_what_the_wheel_lacks_is_said():
    assert not engines_paddle.has_onednn()
    assert "_native" in registry.make_engine("native").unavailable()


@pytest.mark.parametrize("name", arm_nets.NETS)
def test_ordinary_code_is_compiled(name):
    """By ONNX Runtime, which the library puts first, when nothing is configured."""
    net, data = arm_nets.make(name)
    want = arm_nets.run(net, data)
    pfb.install()
    try:
        boosted = pfb.to_static(net)
        with override(sync=True, hot_calls=2, min_gain=0.0):
            for _ in range(4):
                assert_close(arm_nets.run(boosted, data), want)
        told = str(pfb.explain(boosted))
        assert "engine onnxruntime" in told, told
    finally:
        pfb.uninstall()


@pytest.mark.parametrize("name", arm_nets.NETS)
def test_bundle_made_on_x86(name):
    stored = np.load(os.path.join(BUNDLES, f"{name}.npz"))
    data, *want = (stored[key] for key in stored.files)
    model = pfb.load(os.path.join(BUNDLES, name, "model.pfb"))
    assert_close(arm_nets.run(model, data), want)


def test_tensors_come_from_the_pool():
    assert library.missing() is None
    assert paddle_tensors.try_out() is None
