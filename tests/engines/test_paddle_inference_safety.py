"""The ops we call safe under oneDNN are; the others are tried in a child process first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import paddle
import paddle.nn.functional as F
import paddle_inference_cases as cases
import pytest
from paddle import nn
from paddle_inference_cases import ENGINE, ONEDNN

from paddle_fluid_boost.engines import paddle_inference_safety as safety
from paddle_fluid_boost.engines.paddle_inference import PaddleInference
from paddle_fluid_boost.engines.probe_client import PROBE, ProbeClient, ProbeUnavailable
from paddle_fluid_boost.errors import EngineError
from paddle_fluid_boost.options import override


class _SqueezeExcite(nn.Layer):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2D(8, 4, 1), nn.Conv2D(4, 8, 1)

    def forward(self, x):
        scale = F.adaptive_avg_pool2d(x, 1)
        return x * F.hardsigmoid(self.second(F.relu(self.first(scale))))


class _Shuffle(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2D(4, 4, 3, padding=1, groups=4)

    def forward(self, x):
        left, right = paddle.split(x, [4, 4], axis=1)
        right, _ = paddle.split(paddle.concat([right, left], axis=1), 2, axis=1)
        x = paddle.concat([left, F.relu6(self.conv(right))], axis=1)
        x = x.reshape([2, 2, 4, 12, 12]).transpose([0, 2, 1, 3, 4]).flatten(1, 2)
        return x[:, 1:5, 2:, ::1].squeeze(), x.unsqueeze(1).astype("float64")


def _elementwise(x):
    y = paddle.abs(x) + 0.5
    z = paddle.sqrt(y) / (y - 0.25) * paddle.exp(-y) + paddle.pow(y, 2.0)
    z = F.silu(F.swish(paddle.tanh(z))) + F.sigmoid(x).clip(0.2, 0.7)
    sums = z.sum(1, keepdim=True) - z.mean()
    return z, z.mean([2, 3]), z.mean(-1, keepdim=True), sums, z.max(-1), F.log_softmax(z, 1)


class _Tokens(nn.Layer):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(9, 32)
        self.encoder = cases.encoder()

    def forward(self, tokens):
        x = self.encoder(self.embedding(tokens))
        return F.softmax(paddle.matmul(x, self.embedding.weight, transpose_y=True))


def _programs():
    image = paddle.randn([2, 8, 12, 12])
    depthwise = nn.Conv2D(8, 8, 3, padding=2, dilation=2, groups=8)
    yield (
        nn.Sequential(
            *(nn.Conv2D(8, 8, 3), nn.BatchNorm2D(8), nn.Hardswish(), nn.MaxPool2D(2)),
            *(depthwise, nn.BatchNorm2D(8), nn.GELU(), nn.Dropout(0.5), nn.AvgPool2D(2)),
            *(nn.Flatten(), nn.Linear(32, 6), nn.LayerNorm(6), nn.ReLU()),
        ),
        image,
    )
    yield _SqueezeExcite(), image
    yield _Shuffle(), image
    yield _elementwise, image
    yield _Tokens(), paddle.randint(0, 9, [2, 5])


def test_every_op_called_safe_equals_eager(capfd):
    paddle.seed(3)
    met = set()
    for call, x in _programs():
        if isinstance(call, nn.Layer):
            cases.calibrated(call, x)
        captured = cases.capture(call, x)
        names = captured.op_names
        assert safety.unproven(names) == []
        met |= set(names)
        executable = ENGINE.build(captured, ONEDNN)
        for _ in range(3):
            cases.assert_same(executable([x]), cases.eager(call, x))
    assert {op for op in safety.KNOWN_SAFE if op.startswith("pd_op.")} <= met
    assert capfd.readouterr().out == ""  # a program's standard output is not Paddle's to write to


@pytest.mark.parametrize("name", ["shufflenet_v2_x0_25", "squeezenet1_1", "mobilenet_v2"])
def test_vision_zoo_is_served_without_a_probe(name):
    x = paddle.randn([2, 3, 64, 64])
    net = cases.calibrated(getattr(paddle.vision.models, name)(num_classes=10), x)
    captured = cases.capture(net, x)
    assert safety.unproven(captured.op_names) == []
    cases.assert_same(ENGINE.build(captured, ONEDNN)([x]), cases.eager(net, x))


def test_leaky_relu_is_cured_by_leaving_out_the_fusion_that_crashes():
    x = paddle.randn([1, 3, 16, 16])
    net = nn.Sequential(nn.Conv2D(3, 16, 3), nn.LeakyReLU(0.1), nn.Conv2D(16, 4, 3), nn.ReLU())
    executable = ENGINE.build(cases.capture(net, x), ONEDNN)
    cases.assert_same(executable([x]), cases.eager(net, x))
    assert any("conv_activation_onednn_fuse_pass" in note for note in executable.notes)


def test_wrong_values_are_found_in_the_child():
    x = paddle.randn([1, 64, 200])
    net = cases.dilated_separable()
    captured = cases.capture(net, x)
    with pytest.raises(EngineError, match=r"prelu may be unsafe.*wrong values"):
        ENGINE.build(captured, ONEDNN)
    cases.assert_same(ENGINE.build(captured, cases.PLAIN)([x]), cases.eager(net, x))


def test_an_op_onednn_cannot_take_is_found_in_the_child():
    x = paddle.randn([1, 3, 16, 16])
    net = cases.Upsampler()
    captured = cases.capture(net, x)
    try:
        executable = ENGINE.build(captured, ONEDNN)
    except EngineError as refusal:  # Paddle 3.3
        assert "bilinear_interp may be unsafe" in str(refusal)
        assert "it raises" in str(refusal) and "DoubleAttribute" in str(refusal)
    else:  # Paddle 3.1 and 3.2 take it
        cases.assert_same(executable([x]), cases.eager(net, x))
    cases.assert_same(ENGINE.build(captured, cases.PLAIN)([x]), cases.eager(net, x))


def test_a_crash_in_the_child_is_a_refusal_here(monkeypatch):
    x = paddle.randn([1, 3, 16, 16])
    net = nn.Sequential(nn.Conv2D(3, 16, 3), nn.LeakyReLU(0.1))
    captured = cases.capture(net, x)
    # As if nobody knew the cure: without it Paddle 3.3 dies of SIGSEGV, 3.1 does not.
    monkeypatch.setattr(safety, "known_faults", lambda names: [])
    engine = PaddleInference()
    try:
        executable = engine.build(captured, ONEDNN)
    except EngineError as refusal:
        assert "leaky_relu may be unsafe" in str(refusal)
        assert "crashes the process (SIGSEGV)" in str(refusal)
        monkeypatch.setattr(PROBE, "ask", None)  # the verdict is remembered
        with pytest.raises(EngineError, match="SIGSEGV"):
            engine.build(captured, ONEDNN)
    else:
        cases.assert_same(executable([x]), cases.eager(net, x))


def test_a_harmless_unknown_op_passes_the_probe():
    x = paddle.randn([1, 3, 16, 16])
    net = nn.Sequential(nn.Conv2D(3, 8, 3), nn.InstanceNorm2D(8), nn.Conv2D(8, 2, 3))
    executable = ENGINE.build(cases.capture(net, x), ONEDNN)
    assert any("pd_op.instance_norm" in note for note in executable.notes)
    cases.assert_same(executable([x]), cases.eager(net, x))


def test_no_probe_no_onednn():
    x = paddle.randn([1, 3, 16, 16])
    captured = cases.capture(cases.Upsampler(), x)
    assert [c["onednn"] for c in ENGINE.candidates(captured)] == [True, False]
    with override(probe_in_child=False):
        assert [c["onednn"] for c in ENGINE.candidates(captured)] == [False]
        with pytest.raises(EngineError, match="probe_in_child is off"):
            PaddleInference().build(captured, ONEDNN)


class _Stub(ProbeClient):
    """A client whose child is a few lines of Python."""

    def __init__(self, monkeypatch, code):
        super().__init__()
        self.started = 0

        def start():
            self.started += 1
            return subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )

        monkeypatch.setattr("paddle_fluid_boost.engines.probe_client._start", start)


_ECHO = """
import sys
for line in sys.stdin:
    print("noise", flush=True)
    print('pfb-probe {"wrong": null}', flush=True)
"""


def _exists(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_one_child_serves_many_probes(monkeypatch):
    client = _Stub(monkeypatch, _ECHO)
    assert [client.ask({}, 10) for _ in range(5)] == [None] * 5
    assert client.started == 1
    pid = client._child.pid
    client.close()
    assert not _exists(pid)  # no zombie either
    assert client.ask({}, 10) is None
    client.close()


def test_a_child_that_hangs_is_killed(monkeypatch):
    client = _Stub(monkeypatch, "import time; time.sleep(60)")
    started = time.monotonic()
    assert client.ask({}, 0.5) == "gives no answer in time"
    assert time.monotonic() - started < 10
    assert client._child is None


def test_a_child_that_left_after_its_idle_minute_is_replaced(monkeypatch):
    gone = subprocess.Popen(
        [sys.executable, "-c", ""], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    client = _Stub(monkeypatch, _ECHO)
    client._child = gone
    assert client.ask({}, 10) is None
    assert (client.started, gone.returncode) == (1, 0)
    client.close()


def test_a_child_killed_by_the_system_is_a_verdict(monkeypatch):
    client = _Stub(monkeypatch, "import os, sys; sys.stdin.readline(); os.kill(os.getpid(), 9)")
    assert client.ask({}, 10) == "crashes the process (SIGKILL)"
    assert client.started == 1


def test_a_forked_process_starts_a_child_of_its_own(monkeypatch):
    client = _Stub(monkeypatch, _ECHO)
    client.ask({}, 10)
    parents = client._child.pid

    def work() -> int:
        client.forget()
        answered = client.ask({}, 10) is None and client._child.pid != parents
        client.close()
        return 0 if answered and _exists(parents) else 1

    assert cases.exit_status_of_fork(work) == 0
    assert client.ask({}, 10) is None
    client.close()


def test_no_interpreter_to_start(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/usr/sbin/uwsgi")
    with pytest.raises(ProbeUnavailable, match="uwsgi"):
        ProbeClient().ask({}, 1)


def test_the_child_dies_with_its_parent():
    script = (
        "import os\n"
        "from paddle_fluid_boost.engines.probe_client import PROBE, _start\n"
        "PROBE._child = _start()\n"
        "print(PROBE._child.pid, flush=True)\n"
        f"os.kill(os.getpid(), {int(signal.SIGKILL)})\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True)
    pid = int(done.stdout)
    deadline = time.monotonic() + 30
    while _exists(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _exists(pid)
