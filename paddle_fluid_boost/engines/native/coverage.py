"""Who computes what: the steps of a profile summed up by op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...report.records import OpShare

#: What the builder calls a step that a kernel of Paddle's runs (``builder.cc``).
HOST = "host"


def op_shares(profile: Sequence[tuple[str, str, float]], flops: Mapping[str, int]) -> list[OpShare]:
    """The ops of a profile, the dearest first.

    Args:
        profile: (op, implementation, microseconds) of every step.
        flops: operations of all nodes of an op.
    """
    steps: dict[tuple[str, bool], list[float]] = {}
    for op, implementation, microseconds in profile:
        steps.setdefault((op, implementation != HOST), []).append(microseconds)
    total = sum(map(sum, steps.values())) or 1.0
    shares = [
        OpShare(op, native, len(times), sum(times), sum(times) / total, _rate(flops, op, times))
        for (op, native), times in steps.items()
    ]
    return sorted(shares, key=lambda share: -share.microseconds)


def _rate(flops: Mapping[str, int], op: str, times: Sequence[float]) -> float:
    seconds = sum(times) / 1e6
    return flops.get(op, 0) / seconds / 1e9 if seconds else 0.0
