"""Loads a bundle as its user will, in a fresh process: ``python child_bundle.py REQUEST``.

The request is a JSON file: ``{"root": folder of the package, "bundle": path, "cases": [[.npy]],
"folder": path, "repeats": n}``.
"""

from __future__ import annotations

import json
import os
import sys
import time

#: Long enough for caches to be another's and threads to be asleep, as they are at a first call.
_PAUSE_S = 0.3


def main(path: str) -> None:
    """Loads, runs every case, measures, and writes ``answer.json``."""
    with open(path) as file:
        request = json.load(file)
    sys.path.insert(0, request["root"])
    import numpy
    import paddle

    import paddle_fluid_boost as pfb
    from paddle_fluid_boost.capture.structure import leaves

    started = time.perf_counter()
    model = pfb.load(request["bundle"])
    load_s = time.perf_counter() - started
    counts, first_s = [], 0.0
    for number, files in enumerate(request["cases"]):
        tensors = [paddle.to_tensor(numpy.load(file)) for file in files]
        started = time.perf_counter()
        result = model(*tensors)
        if number == 0:
            first_s = time.perf_counter() - started
        distinct = {id(one): one for one in leaves(result) if isinstance(one, paddle.Tensor)}
        for position, tensor in enumerate(distinct.values()):
            target = os.path.join(request["folder"], f"out{number}_{position}.npy")
            numpy.save(target, tensor.numpy(), allow_pickle=False)
        counts.append(len(distinct))
    times = []
    tensors = [paddle.to_tensor(numpy.load(file)) for file in request["cases"][0]]
    for _ in range(request["repeats"]):
        started = time.perf_counter()
        model(*tensors)
        times.append(time.perf_counter() - started)
    time.sleep(_PAUSE_S)
    started = time.perf_counter()
    model(*tensors)
    answer = {
        "counts": counts,
        "load_s": load_s,
        "first_s": first_s,
        "rested_s": time.perf_counter() - started,
        "times_s": times,
    }
    with open(os.path.join(request["folder"], "answer.json"), "w") as file:
        json.dump(answer, file)


if __name__ == "__main__":
    main(sys.argv[1])
