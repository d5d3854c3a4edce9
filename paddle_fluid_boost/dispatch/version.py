"""One compiled version of one call signature, and the conditions under which it may serve.

A version is valid while (a) the Python state that its capture has read is unchanged and (b) the
content of its parameters is.  Both are kept cheap: touches of watched layers and tensors raise a
flag, everything else is a few identity comparisons a call.
"""

from __future__ import annotations

import ctypes
import math
import zlib
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from ..capture.state import Snapshot
from ..engines.base import Executable
from ..hotspot.monitor import SignatureStats
from .results import Rebuild
from .watch import watch

_inplace_version = attrgetter("inplace_version")
_stop_gradient = attrgetter("stop_gradient")
#: Up to so many bytes of parameters are compared in the calling thread when they were touched.
_INLINE_BYTES = 1 << 20


class Flag:
    """Raised when something watched was touched."""

    __slots__ = ("__weakref__", "up")

    def __init__(self) -> None:
        self.up = False

    def touched(self) -> None:
        self.up = True


class Weights:
    """The parameters of a captured program, and whether their content is still the captured one."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        self.tensors = list(tensors)
        self.touched = Flag()
        for tensor in self.tensors:
            watch(tensor, self.touched)
        self._versions = list(map(_inplace_version, self.tensors))
        self._content: list[tuple[Any, ...]] | None = None
        self.nbytes = sum(map(_nbytes, self.tensors))

    def remember(self) -> None:
        """Takes the present content as the captured one (call it before an engine copies it)."""
        self._versions = list(map(_inplace_version, self.tensors))
        self._content = list(map(_fingerprint, self.tensors))

    def untouched(self) -> bool:
        """The check of every call: nobody has reported or counted a write."""
        return not self.touched.up and list(map(_inplace_version, self.tensors)) == self._versions

    def unchanged(self) -> bool:
        """Compares the content; when it is the same, earlier touches are forgotten."""
        self.touched.up = False
        versions = list(map(_inplace_version, self.tensors))
        if list(map(_fingerprint, self.tensors)) != self._content:
            self.touched.up = True
            return False
        self._versions = versions
        return True

    @property
    def small(self) -> bool:
        """True when :meth:`unchanged` is quick enough for the calling thread."""
        return self.nbytes <= _INLINE_BYTES

    def all_stop_gradient(self) -> bool:
        """True when no gradient can flow into any of them."""
        return all(map(_stop_gradient, self.tensors))


def _nbytes(tensor: Any) -> int:
    return math.prod(tensor.shape) * tensor.element_size()  # tensor.size is slow


def _fingerprint(tensor: Any) -> tuple[Any, ...]:
    """Shape, dtype and CRC-32 of the content of a tensor; releases the interpreter lock."""
    if not tensor._is_initialized():  # an LSTM's dropout state has a shape but no memory
        return (tuple(tensor.shape), str(tensor.dtype), None)
    dense = tensor if tensor.is_contiguous() else tensor.contiguous()
    size = _nbytes(dense)
    if not size:
        return (tuple(dense.shape), str(dense.dtype), 0)
    content = (ctypes.c_char * size).from_address(dense.data_ptr())
    return (tuple(dense.shape), str(dense.dtype), zlib.crc32(content))


class Version:
    """A published executable with its guards.

    stats: the counters of its signature.  gain: eager seconds / compiled seconds when measured.
    suspended: why it cannot serve right now, "" while it can.
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
        *,
        grad_enabled: bool,
    ) -> None:
        self.key = key
        self.stats = stats
        self.executable = executable
        self.snapshot = snapshot
        self.weights = weights
        self.suspended = ""
        self._rebuild = rebuild
        self._layers_touched = layers_touched
        self._layers_differ = False
        self._grad_enabled = grad_enabled

    def ready(self) -> bool:
        """True when the version may serve this very call; a few microseconds."""
        return (
            not self._layers_touched.up
            and not self._layers_differ
            and self.snapshot.holds()
            and self.weights.untouched()
            and (not self._grad_enabled or self.weights.all_stop_gradient())
        )

    def revalidate(self) -> str:
        """Looks closer when :meth:`ready` was False: "" when the version may serve after all.

        Otherwise the reason; ``"weights"`` alone means that their content must be compared first.
        """
        if self._layers_touched.up:
            self._layers_touched.up = False
            self._layers_differ = False
            self.suspended = self.snapshot.layer_mismatch() or ""
            self._layers_differ = bool(self.suspended)
        if self._layers_differ:
            return self.suspended
        self.suspended = self.snapshot.mismatch() or ""
        if self.suspended:
            return self.suspended
        if self._grad_enabled and not self.weights.all_stop_gradient():
            return "a parameter takes part in gradients"
        if not self.weights.untouched():
            if not self.weights.small:
                return "weights"
            if not self.weights.unchanged():
                return "weights changed"
        return ""

    def __call__(self, tensors: Sequence[Any]) -> Any:
        return self._rebuild(self.executable(tensors), tensors)

    def close(self) -> None:
        """Frees the engine's resources."""
        self.executable.close()
