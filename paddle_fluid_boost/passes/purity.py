"""Which ops give the same result for the same inputs and do nothing else."""

from __future__ import annotations

from ..ir.graph import Node

_RANDOM = (
    "bernoulli",
    "binomial",
    "dirichlet",
    "dropout",
    "exponential",
    "gaussian",
    "gumbel",
    "multinomial",
    "normal",
    "poisson",
    "rand",
    "rrelu",
    "standard_gamma",
    "truncated_gaussian",
    "uniform",
)


def is_random(node: Node) -> bool:
    """True when the op draws random numbers; dropout and rrelu only while training."""
    if node.attrs.get("is_test"):
        return False
    return any(word in node.op for word in _RANDOM)


def is_pure(node: Node) -> bool:
    """True when equal inputs give equal results and nothing else happens."""
    return bool(node.outputs) and not node.regions and not is_random(node)
