"""A callable that is watched and, where it is hot and safe, replaced by compiled versions.

The way of one call: key -> compiled version whose guards hold -> run it; otherwise run the user's
own code, note the time, and let the policy say whether a compile pays.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable, Hashable
from typing import Any

from ..capture import _paddle as pd
from ..engines.select import Choice
from ..hotspot.monitor import FunctionStats
from ..hotspot.signature_stats import COMPILED, SignatureStats
from ..options import options
from ..report.records import Refusal
from . import hooks
from .cache import VERSIONS_PER_SIGNATURE, VersionCache
from .extraordinary import Extraordinary
from .journal import Journal
from .plainly import running_plainly
from .promotion import POLICY, WORKER, Promotion
from .recheck import WeightsJob
from .signature import MANY_PLACES, Call, Opaque, key_of
from .version import Version

log = logging.getLogger("paddle_fluid_boost.guards")

#: A refused function is looked at again after so many calls, doubling each time.
_FIRST_LOOK_AGAIN = 1000
#: Functions quicker than this (seconds) are looked at once in so many + 1 calls, after the first.
_QUICK = 300e-6
_UNSEEN = 7
_ALWAYS_SEEN = 32


def _let_go_of_owner(unit: Unit) -> Callable[[Any], None]:
    """What a weak reference to the owner of ``unit`` calls when the owner is freed.

    The cyclic collector would do it too, but for Python 3.13.0, which does not track the
    ``__dict__`` of an object that was asked for while it was empty, as Paddle does for layers.
    """
    here = weakref.ref(unit)

    def let_go(_: Any) -> None:
        unit = here()
        if unit is not None:
            unit.forget_state()

    return let_go


_NO_AMP = pd.paddle.base.core.AmpLevel.O0
_tracer_holder = pd.tracer_holder
_units: weakref.WeakSet[Unit] = weakref.WeakSet()


class Unit:
    """One watched callable.

    name: for people.
    eager: the user's code, bound and ready to call.
    roots: returns (label, object) of what ``eager`` is made of, for guards.
    cold: what runs while nothing is compiled (eager, or Paddle's ``to_static`` where the user
        asked for its whole-graph mode).
    training: what runs when gradients are needed.
    owner: the Layer that ``eager`` belongs to, or None; held weakly.
    in_static_mode: what runs while the user builds a static program.
    on_signature: told (args, kwargs) of calls whose signature is not that of the last one.
    on_refused: told when a function turned out not to be compilable as a whole.
    """

    def __init__(
        self,
        name: str,
        eager: Callable[..., Any],
        roots: Callable[[], list[tuple[str, Any]]],
        *,
        cold: Callable[..., Any] | None = None,
        training: Callable[..., Any] | None = None,
        owner: Any = None,
        in_static_mode: Callable[..., Any] | None = None,
        on_signature: Callable[[tuple[Any, ...], dict[str, Any]], None] | None = None,
        on_refused: Callable[[Unit], None] | None = None,
    ) -> None:
        self.name = name
        self.policy = POLICY
        self.stats = FunctionStats(name)
        self.cache = VersionCache(self._made_room)
        self.journal = Journal()
        self.cold = cold or eager
        #: Calls for which a refused function is passed through without a look.
        self.skip = 0
        self._eager = eager
        self._promotion = Promotion(self, eager, roots)
        self._training = training or self.cold
        self._owner = weakref.ref(owner, _let_go_of_owner(self)) if owner is not None else None
        self._in_static_mode = in_static_mode or eager
        self._on_signature = on_signature
        self._last_key: Hashable = None
        self._on_refused = on_refused
        self._trainable: Any = None
        self._look_again = _FIRST_LOOK_AGAIN
        _units.add(self)

    def forget_state(self) -> None:
        """Drops the versions and snapshots, whose owner is gone: they hold parts of it.

        Takes no lock, as the owner may be freed at any moment.
        """
        self.cache.forget()
        self._promotion.forget()
        self.journal.choices = {}

    @property
    def owner(self) -> Any:
        """The Layer this unit belongs to, while it lives."""
        return self._owner() if self._owner is not None else None

    # -- the hot path -----------------------------------------------------------------------------

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One call.  Whoever calls this a lot asks :attr:`skip` first, and if it is not 0 counts it
        down and calls :attr:`cold` directly."""
        if running_plainly():
            return self._eager(*args, **kwargs)
        if not hooks.watching:
            return self.cold(*args, **kwargs)
        tracer = _tracer_holder._dygraph_tracer_
        if tracer is None:
            return self._in_static_mode(*args, **kwargs)
        if tracer._amp_level != _NO_AMP:
            self.journal.stays_dynamic_where_it(
                "runs under auto_cast, whose casts are not compiled yet"
            )
            return self.cold(*args, **kwargs)
        try:
            key, tensors = key_of(args, kwargs)
        except Opaque as reason:
            self.journal.stays_dynamic_where_it(
                f"was called with {reason}, which cannot be part of a key"
            )
            return self.cold(*args, **kwargs)
        for version in self.cache.versions.get(key, ()):
            if version.ready() or self._usable_after_all(version):
                if self._on_signature is not None and version.key is not self._last_key:
                    self._meet(Call(version.key, tensors, args, kwargs))
                return self._run(version, tensors, args, kwargs)
        call = Call(key, tensors, args, kwargs)
        if tracer._has_grad and self._needs_gradients(tensors):
            self._meet(call)
            return self._training(*args, **kwargs)
        if any(map(_is_empty, tensors)):
            return self.cold(*args, **kwargs)
        return self._run_cold(call)

    def _run(
        self, version: Version, tensors: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        stats = version.stats
        try:
            if not stats.sample_due():
                return version(tensors)
            started = time.perf_counter()
            result = version(tensors)
        except Extraordinary:
            self.journal.stays_dynamic_where_it(
                "was given NaN, infinities or numbers beyond 1e18, or computes them"
            )
            return self.cold(*args, **kwargs)
        except Exception as error:  # whatever an engine meets, the user's call must go on
            if version not in self.cache.all():  # another thread has just taken it out
                return self.cold(*args, **kwargs)
            result = self.cold(*args, **kwargs)  # where this raises too, the call is at fault
            log.warning("%s: %s failed", self.name, version.executable.engine, exc_info=error)
            self._withdraw_for_good(version, f"the engine failed: {error}")
            return result
        if stats.record_compiled(time.perf_counter() - started):
            reason = self.policy.review(self.stats, stats)
            if reason and options.min_gain:
                self._withdraw_for_good(version, reason)
            else:
                self._promotion.review(version, Call(version.key, tensors, args, kwargs))
        return result

    def _run_cold(self, call: Call) -> Any:
        stats = self.stats.signature(call.key)
        self._meet(call)
        attempt = self._promotion.attempt(call.key, stats)
        observed = attempt is not None and attempt.snapshot is None
        started = time.perf_counter()
        if attempt is not None and observed:
            result = self._promotion.observe(attempt, call, stats)
        else:
            result = self.cold(*call.args, **call.kwargs)
        seconds = time.perf_counter() - started
        if (
            MANY_PLACES
            and attempt is None
            and not stats.calls
            and any(map(_on_accelerator, call.tensors))
        ):
            stats.record_warm_up(seconds)
            return result
        ask = stats.record_eager(seconds)
        if attempt is None:
            if not ask and not self.cache.versions:
                self._sample(stats)
        elif not observed and stats.in_flight:
            self._promotion.confirm(attempt, call, stats)
        if ask:
            self._promotion.ask_policy(call, stats)
        return result

    def _meet(self, call: Call) -> None:
        """Tells of a signature that is not the one of the last call."""
        last, self._last_key = self._last_key, call.key
        if self._on_signature is not None and call.key != last:
            self._on_signature(call.args, call.kwargs)

    def _sample(self, stats: SignatureStats) -> None:
        """Lets calls of a quick function pass unseen, where looking would cost a good part of it.

        They are counted as calls like the one just timed.
        """
        seconds = stats.eager_median()
        if stats.eager_calls >= _ALWAYS_SEEN and seconds < _QUICK and not options.hot_calls:
            self.skip = _UNSEEN
            stats.eager_calls += _UNSEEN
            stats.eager_seconds += _UNSEEN * seconds

    def _needs_gradients(self, tensors: list[Any]) -> bool:
        """True when autograd would record this call: an input or a parameter of the owner."""
        if not all(map(_stop_gradient, tensors)):
            return True
        if self._trainable is not None and not self._trainable.stop_gradient:
            return True
        owner = self.owner
        parameters = owner.parameters() if owner is not None else ()
        self._trainable = next((p for p in parameters if not p.stop_gradient), None)
        return self._trainable is not None

    def _usable_after_all(self, version: Version) -> bool:
        """Looks closer at a version whose quick check failed."""
        reason = version.revalidate()
        if not reason:
            return True
        if reason == "weights":
            if WORKER.submit(WeightsJob(self, version)):
                return options.sync and version.ready()
        elif reason == "weights changed":
            self.withdraw(version, reason)
        elif version.stats.state == COMPILED:
            held = self.cache.versions.get(version.key, ())
            if len(held) < VERSIONS_PER_SIGNATURE:
                # Another state of the program: it may get a version of its own once it is hot.
                log.info("%s: guard: %s", self.name, reason)
                self.policy.lost(self.stats, version.stats, reason)
        return False

    # -- from cold to compiled --------------------------------------------------------------------

    def compile_now(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Compiles the signature of this call in the calling thread; see
        :meth:`Promotion.compile_now`.

        Raises:
            Opaque: an argument cannot be part of a key.
        """
        call = Call(*key_of(args, kwargs), args, kwargs)
        if not any(version.ready() for version in self.cache.versions.get(call.key, ())):
            self.skip = 0
            self._promotion.compile_now(call)

    def cannot_be_compiled(self, stats: SignatureStats, refusals: list[Refusal]) -> None:
        """The user's code itself stands against a compile."""
        for refusal in refusals:
            self.journal.refuse(refusal)
        self._reject(stats, refusals[0], 0.0)
        if refusals[0].permanent and not self.cache.versions:
            self.skip = self._look_again
            self._look_again *= 2
            self.stats.reopen("looked at again")  # so that the next look can ask the policy
            self._split()

    def _split(self) -> None:
        if self._on_refused is not None:
            self._on_refused(self)

    # -- what the worker reports ------------------------------------------------------------------

    def publish(self, version: Version, choice: Choice, cost: float) -> None:
        """Puts a version in use; from the next call on it serves."""
        self.cache.add(version)
        self.skip = 0
        self.journal.chose(version.key, choice)
        self.policy.published(
            self.stats, version.stats, eager=choice.eager, compiled=choice.compiled, cost=cost
        )
        what = self.journal.descriptions.get(version.key, "")
        self.journal.tell(f"compiled {what} with {version.executable.engine} in {cost:.2f} s")

    def replace(self, old: Version, new: Version, choice: Choice, reason: str) -> bool:
        """Puts a version in the place of another; False when that one is out of use already."""
        if not self.cache.replace(old, new):
            return False
        self.journal.chose(new.key, choice)
        self.journal.tell(reason)
        return True

    def refused(
        self, stats: SignatureStats, refusal: Refusal, cost: float, *, split: bool = False
    ) -> None:
        """A compile came to nothing; ``split``: because the whole cannot be captured."""
        self.journal.refuse(refusal)
        self._reject(stats, refusal, cost)
        if split and not self.cache.versions:
            self._split()

    def withdraw(self, version: Version, reason: str) -> None:
        """Takes a version out of use; its signature may become hot again."""
        if self.cache.drop(version):
            self._lost(version, reason)

    def _withdraw_for_good(self, version: Version, reason: str) -> None:
        """Takes out a version that should not have been made: the policy backs off."""
        if self.cache.drop(version):
            self.journal.refuse(Refusal(reason))
            self._reject(version.stats, Refusal(reason), 0.0)

    def _made_room(self, version: Version) -> None:
        self._lost(version, "evicted: other versions save more")

    def _lost(self, version: Version, reason: str) -> None:
        self.journal.tell(reason)
        log.info("%s: version withdrawn: %s", self.name, reason)
        self.policy.lost(self.stats, version.stats, reason)

    def _reject(self, stats: SignatureStats, refusal: Refusal, cost: float) -> None:
        log.info("%s: stays dynamic: %s", self.name, refusal)
        self.journal.tell(f"stays dynamic: {refusal}")
        self.policy.rejected(
            self.stats, stats, str(refusal), cost=cost, permanent=refusal.permanent
        )


def _stop_gradient(tensor: Any) -> bool:
    return tensor.stop_gradient


def _on_accelerator(tensor: Any) -> bool:
    return not tensor.place.is_cpu_place()


def _is_empty(tensor: Any) -> bool:
    return 0 in tensor.shape  # much quicker than tensor.size


def all_units() -> list[Unit]:
    """Every unit of the process that is still alive."""
    return list(_units)
