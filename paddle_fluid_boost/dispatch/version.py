"""One compiled version of one call signature, and the conditions under which it may serve.

A version is valid while (a) the Python state that its capture has read is unchanged and (b) the
content of its parameters is.  Both are kept cheap: touches of watched layers and tensors raise a
flag, everything else is a few identity comparisons a call.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from ..capture import _paddle as pd
from ..capture.state import Snapshot
from ..engines.base import Executable
from ..engines.dense import dense, fingerprint, nbytes
from ..hotspot.signature_stats import SignatureStats
from .extraordinary import NumbersCheck
from .results import Rebuild
from .watch import watch

_stop_gradient = attrgetter("stop_gradient")
#: Up to so many bytes of parameters are compared in the calling thread when they were touched.
_INLINE_BYTES = 1 << 20


_touches = itertools.count(1)


class Flag:
    """Counts touches of what it watches.

    serial: another number after each touch.  Whoever compares notes it *before* the comparison: a
    touch meanwhile, by another thread, is then not taken for one that was looked at.
    """

    __slots__ = ("__weakref__", "serial")

    def __init__(self) -> None:
        self.serial = 0

    def touched(self, key: int) -> None:
        self.serial = next(_touches)


class Weights:
    """The parameters of a captured program, and whether their content is still the captured one."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        self.tensors = list(tensors)
        #: (id of a tensor, round of comparing in which it was touched): those of earlier rounds are
        #: dropped once they were found unchanged, those of this round must be looked at again.
        self._touched: set[tuple[int, int]] = set()
        self._round = 0
        self._comparing = threading.Lock()
        self._versions = list(map(pd.inplace_version, self.tensors))
        self._content: list[tuple[Any, ...]] = []
        self._watch(self.tensors)

    def touched(self, key: int) -> None:
        """One of the tensors may have been written to."""
        self._touched.add((key, self._round))

    def suspect_buffers(self) -> None:
        """The tensors that are no parameters may have been written to."""
        for tensor in self.tensors:
            if not isinstance(tensor, pd.framework.EagerParamBase):
                self.touched(id(tensor))

    def remember(self) -> None:
        """Takes the present content as the captured one (call it before an engine copies it)."""
        self._touched.clear()
        self._versions = list(map(pd.inplace_version, self.tensors))
        self._content = list(map(fingerprint, self.tensors))

    def untouched(self) -> bool:
        """The check of every call: nobody has reported or counted a write."""
        return not self._touched and list(map(pd.inplace_version, self.tensors)) == self._versions

    def unchanged(self) -> bool:
        """Compares the content of what was touched; touches that changed nothing are forgotten."""
        with self._comparing:
            self._round += 1
            touched = self._touched.copy()
            versions = list(map(pd.inplace_version, self.tensors))
            suspects = self._suspects(touched, versions)
            if any(fingerprint(self.tensors[i]) != self._content[i] for i in suspects):
                return False
            self._watch([self.tensors[i] for i in suspects])
            self._versions = versions
            self._touched -= touched
            return True

    @property
    def quick(self) -> bool:
        """True when :meth:`unchanged` is quick enough for the calling thread."""
        if self._comparing.locked():
            return False
        suspects = self._suspects(self._touched.copy(), list(map(pd.inplace_version, self.tensors)))
        return sum(nbytes(self.tensors[i]) for i in suspects) <= _INLINE_BYTES

    def _suspects(self, touched: set[tuple[int, int]], versions: list[int]) -> list[int]:
        """Numbers of the tensors that were touched or whose ``inplace_version`` has moved."""
        keys = {key for key, _ in touched}
        return [
            i
            for i, (tensor, version) in enumerate(zip(self.tensors, versions))
            if version != self._versions[i] or id(tensor) in keys
        ]

    def _watch(self, tensors: Sequence[Any]) -> None:
        for tensor in tensors:
            watch(tensor, self)

    def all_stop_gradient(self) -> bool:
        """True when no gradient can flow into any of them."""
        return all(map(_stop_gradient, self.tensors))


class Version:
    """A published executable with its guards.

    stats: the counters of its signature.  gain: eager seconds / compiled seconds when measured.
    strided: which inputs of such a call are not contiguous; the key says so for all its calls.
    suspended: why it cannot serve right now, "" while it can.
    before: the version that the tuner put this one in the place of, and the median seconds of its
        calls, until it is known which of them is faster in use.
    tuned: the tuner has looked at it.
    """

    def __init__(
        self,
        key: Any,
        stats: SignatureStats,
        executable: Executable,
        rebuild: Rebuild,
        snapshot: Snapshot,
        weights: Weights,
        layers_touched: Flag,
        numbers: NumbersCheck,
        *,
        strided: Sequence[int],
        grad_enabled: bool,
    ) -> None:
        self.key = key
        self.stats = stats
        self.executable = executable
        self.snapshot = snapshot
        self.weights = weights
        self.suspended = ""
        self.before: tuple[Version, float] | None = None
        self.tuned = False
        self._rebuild = rebuild
        self._numbers = numbers
        self._strided = list(strided)
        self.layers_touched = layers_touched
        self._layers_seen = 0  # the snapshot was taken with a new flag
        self._layers_differ = False
        self._grad_enabled = grad_enabled

    def ready(self) -> bool:
        """True when the version may serve this very call; a few microseconds."""
        return (
            self.layers_touched.serial == self._layers_seen
            and not self._layers_differ
            and self.snapshot.holds()
            and self.weights.untouched()
            and (not self._grad_enabled or self.weights.all_stop_gradient())
        )

    def revalidate(self) -> str:
        """Looks closer when :meth:`ready` was False: "" when the version may serve after all.

        Otherwise the reason; ``"weights"`` alone means that their content must be compared first.
        """
        touches = self.layers_touched.serial
        if touches != self._layers_seen:
            self.suspended = self.snapshot.layer_mismatch() or ""
            self._layers_differ = bool(self.suspended)
            self.weights.suspect_buffers()  # the layer may have been in training meanwhile
            self._layers_seen = touches
        if self._layers_differ:
            return self.suspended
        self.suspended = self.snapshot.mismatch() or ""
        if self.suspended:
            return self.suspended
        if self._grad_enabled and not self.weights.all_stop_gradient():
            return "a parameter takes part in gradients"
        if not self.weights.untouched():
            if not self.weights.quick:
                return "weights"
            if not self.weights.unchanged():
                return "weights changed"
        return ""

    def __call__(self, tensors: Sequence[Any]) -> Any:
        """The result for these inputs.

        Raises:
            Extraordinary: a number in them, or in the outputs, must be left to eager mode.
        """
        self._numbers.inputs(tensors)
        outputs = self.executable(self._dense(tensors) if self._strided else tensors)
        self._numbers.outputs(outputs)
        return self._rebuild(outputs, tensors)

    def _dense(self, tensors: Sequence[Any]) -> list[Any]:
        """The inputs, with copies of the strided ones."""
        inputs = list(tensors)
        for index in self._strided:
            inputs[index] = dense(inputs[index])
        return inputs

    def close(self) -> None:
        """Frees the engine's resources."""
        self.executable.close()
        if self.before is not None:
            self.before[0].close()
