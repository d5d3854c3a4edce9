"""All threads or one, for networks so small that this is a question: settled in use, by timing.

Threads meet after every step.  For a step of a few microseconds that is cheap on an idle machine
and costs more than the step wherever the threads share a core with others, with each other, or
have gone to sleep.  Neither can be known when a plan is built, and both change while it is used.
"""

from __future__ import annotations

import statistics

#: Calls that are judged together, and how many of them do not count: they wake the threads.
_BLOCK, _WAKING = 8, 2
#: The plan in use stays for at least so many blocks, and twice as many after each trial that
#: confirmed it, up to the second number.  The first stays are short, as the first calls are often
#: timed beside a compile, which slows the plan with more threads far more than the other.
_FIRST_STAY, _LONGEST_STAY = 2, 512
#: A trial must be won by this factor; a plan that became slower by the second one than the other
#: was when last seen is put on trial early.
_CLEARLY, _SUSPECT = 0.95, 1.25


class ThreadChoice:
    """Which of two plans takes the next call: :attr:`current`, 0 or 1.

    Calls may come from several threads at once; then a time may be counted for the wrong plan,
    which costs a wrong turn until the next trial.
    """

    def __init__(self) -> None:
        self.current = 0
        self._costs: list[float | None] = [None, None]
        self._block: list[float] = []
        self._stay = self._left = _FIRST_STAY
        self._on_trial = False

    def record(self, plan: int, seconds: float) -> None:
        """A call of ``plan`` took so long."""
        if plan != self.current:
            return
        block = self._block
        block.append(seconds)
        if len(block) < _BLOCK:
            return
        self._block = []
        self._costs[plan] = statistics.median(block[_WAKING:])
        self._decide(plan, self._costs[plan], self._costs[1 - plan])

    def _decide(self, plan: int, cost: float | None, other: float | None) -> None:
        assert cost is not None
        if self._on_trial:
            self._on_trial = False
            won = other is None or cost < _CLEARLY * other
            self._stay = _FIRST_STAY if won else min(2 * self._stay, _LONGEST_STAY)
            self._left = self._stay
            self.current = plan if won else 1 - plan
            return
        self._left -= 1
        if other is None or self._left <= 0 or cost > _SUSPECT * other:
            self._on_trial = True
            self.current = 1 - plan
