"""Other ways in, for the cases: whole-graph mode, and no decorator at all."""

import functools

import paddle_fluid_boost as pfb

whole_graph = functools.partial(pfb.to_static, full_graph=True)


def watched_only(target):
    """Leaves the target alone: ``install(auto=True)`` finds its layers."""
    pfb.install(auto=True)
    return target
