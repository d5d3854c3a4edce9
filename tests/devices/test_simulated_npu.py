"""The custom-device engine on a simulated NPU, in child processes (see simulated_npu/README.md)."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Callable

import pytest
from simulated_npu_build import build, run_scenario, why_not

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

_ON_THE_CPU = ("paddle_inference", "paddle_inference+onednn")


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: Any) -> Callable[..., dict[str, Any]]:
    """Runs a scenario once, however many tests look at its answer."""
    root = build(Path(tmp_path_factory.mktemp("custom_device")))
    return functools.cache(functools.partial(run_scenario, root))


def test_hot_calls_on_the_device_run_there(scenario):
    facts = scenario("on_the_device")
    assert facts["engine"] == "paddle_inference on npu:0"
    assert facts["places"] == ["Place(npu:0)"] and facts["weights"] == "Place(npu:0)"
    assert max(facts["errors"]) < 1e-5
    assert facts["nan_alike"]


def test_changed_weights_reach_the_device(scenario):
    facts = scenario("on_the_device")
    assert facts["stale"] < 1e-5 and facts["withdrawn"]


def test_coverage_tells_what_falls_back_and_why(scenario):
    facts = scenario("on_the_device")
    assert facts["on_device"] == {"add": 2}
    assert set(facts["on_cpu"]) == {"conv2d", "batch_norm", "relu", "flatten", "matmul"}
    assert facts["reasons"]["conv2d"] == "no npu kernel"
    assert facts["reasons"]["relu"] == "all it reads is on the CPU"  # the device has one
    assert "2 of 7 ops run on npu" in facts["explained"]


def test_coverage_counts_the_copies_that_happen(scenario):
    facts = scenario("on_the_device")
    counted = facts["counted"]
    assert facts["copies"] == {"d2h": counted["d2h"], "h2d": counted["h2d"]}
    assert facts["copied_bytes"] == counted["bytes"] > 0
    assert sum(facts["shares"].values()) == pytest.approx(1.0)
    assert counted["kernel"] == sum(facts["on_device"].values())


def test_the_device_serves_calls_on_the_cpu_when_asked_to(scenario):
    facts = scenario("from_the_cpu")
    assert facts["engine"] == "paddle_inference on npu:1" and facts["ran_there"]
    assert facts["place"] == "Place(cpu)" and facts["default_device"] == "cpu"
    assert facts["error"] < 1e-5
    assert facts["live"] == [False, True]  # nothing on the device that was not asked for


def test_a_missing_device_is_named_and_the_cpu_serves(scenario):
    facts = scenario("from_the_cpu")
    assert facts["missing_engine"] in _ON_THE_CPU
    assert "no device npu:6 is registered; known: npu:0, npu:1" in facts["missing"]


def test_calls_on_the_cpu_stay_there_by_default(scenario):
    assert scenario("from_the_cpu")["auto_engine"] in _ON_THE_CPU


@pytest.mark.parametrize("event", ["allocate", "h2d", "d2h", "synchronize"])
def test_no_call_is_lost_when_the_device_fails(scenario, event):
    gives_back = scenario("failures")["gives_back"]
    if event == "allocate" and not gives_back:
        pytest.skip("this Paddle serves what the test would refuse from its cache")
    facts = scenario("failures")[event]
    assert facts["was_there"]
    assert facts["wrong"] < 1e-5
    assert facts["withdrawn"]
    assert facts["held"] == 0 and facts["given_back"] >= gives_back
    assert "the engine failed: paddle_inference on npu:0: OSError" in facts["explained"]


def test_no_call_is_lost_at_whatever_moment_the_device_fails(scenario):
    assert scenario("failures_at_any_moment") == {"wrong": [], "held": []}


def test_a_predictor_keeps_to_its_shapes(scenario):
    facts = scenario("engine_rules")
    assert "built for [[2, 3, 8, 8]], called with [[3, 3, 8, 8]]" in facts["other_shape"]
    assert facts["still_runs"] < 1e-5


def test_inputs_of_every_kind(scenario):
    facts = scenario("engine_rules")
    assert facts["from_cpu"] < 1e-5 and facts["strided"] < 1e-5
    assert facts["threads"][0] == 20 and facts["threads"][1] < 1e-5


def test_a_forked_child_leaves_the_device_alone(scenario):
    assert scenario("engine_rules")["fork"] == 0


def test_memory_is_estimated_and_limited(scenario):
    facts = scenario("engine_rules")
    assert facts["held"] == facts["parameters"] + facts["peak"]
    assert facts["used"] / 2 < facts["held"] < facts["used"] * 2
    assert "options.device_memory_mb allows 1" in facts["no_room"]
    assert facts["left"] == 0
    assert facts["kept"] <= 4096 or not facts["gives_back"]  # of 18 KiB and 1.2 MiB
    assert "called after close()" in facts["closed"]


def test_refusals_name_what_is_wrong(scenario):
    facts = scenario("engine_rules")
    for case in ("unknown_device", "unknown_kind"):  # Paddle itself would abort the process
        assert "is registered; known: npu:0, npu:1" in facts[case]
    assert "settings need device" in facts["wrong_settings"]
    assert not facts["gives_back"] or "CustomDevice error" in facts["no_memory"]
    assert facts["after_no_memory"] == 0


def test_first_runs_are_kept_out_of_the_statistics(scenario):
    facts = scenario("first_run", SIMULATED_NPU_COMPILE_MS="250")
    assert facts["compiles"] == 1 and facts["calls"] == 3
    assert facts["warm_up_calls"] == 1 and facts["warm_up_s"] >= 0.25
    assert facts["eager_calls"] == 2
    assert facts["first_s"] >= 0.25
    assert any("its first run on npu:0 took" in note for note in facts["notes"])


def test_an_abort_happens_in_the_probe_child(scenario):
    facts = scenario("aborts")
    assert "in a child process, it crashes the process (SIGABRT)" in facts["explained"]
    assert facts["engine"] != "paddle_inference on npu:0"
    assert facts["error"] < 1e-4


def test_a_bundle_takes_tensors_on_the_device(scenario):
    facts = scenario("bundle")  # the CPU's plans must not read device addresses
    assert facts["place"] == "Place(npu:0)"
    assert facts["error"] < 1e-5


def test_a_bundle_is_loaded_onto_the_device(scenario):
    facts = scenario("bundle")
    assert facts["here"] == "Place(cpu)" and facts["device_place"] == "Place(npu:1)"
    assert facts["device_error"] < 1e-5 and facts["larger_error"] < 1e-5
    assert facts["notes"][0] == "runs in paddle_inference on npu:1"
    assert facts["held"] > 0 and facts["left"] == 0
    assert "there is no such device; Paddle has: npu:0, npu:1" in facts["missing"]


def test_a_loaded_model_survives_a_failure_of_the_device(scenario):
    facts = scenario("bundle")
    assert "paddle_inference on npu:1: OSError" in facts["failure"]
    assert facts["held_after_failure"] == 0
    assert facts["again"] < 1e-5


def test_a_pipeline_uploads_the_next_frame_while_one_is_computed(scenario):
    facts = scenario("uploads_beside_compute")
    assert facts["waited"] == [True] * 5  # each call has seen the upload of the frame after it
    assert facts["got"] == [0.0, 1.0, 2.0, 3.0, 4.0] and facts["places"] == ["Place(npu:0)"]
