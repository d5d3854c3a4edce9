"""What one way to run a network adds to its process: a part of ``zoo.py --memory``."""

from __future__ import annotations

from typing import Any

#: Enough for all allocators to have seen every size, and for ours to have compiled.
_CALLS = 20


def child(model: str, batch: str, way: str) -> dict[str, Any]:
    """MiB by which this process grew from before ``way`` was prepared: now, and at its fullest.

    The network itself is there before, for all; so a way that keeps weights of its own shows them.
    """
    import competitors
    import models
    from footprint import footprint

    net, data = models.build(model, int(batch))
    before = footprint()
    call = competitors.ALL[way](net, data, model)
    for _ in range(_CALLS):
        call()
    after = footprint()
    return {
        "grown_mib": after.resident - before.resident,
        "peak_mib": after.peak - before.resident,
    }
