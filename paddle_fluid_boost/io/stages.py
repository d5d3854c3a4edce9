"""Work on items in stages, each in a thread of its own, in order, with few items under way.

An item is taken from the source only while fewer than ``depth`` others are under way: from the
moment it is asked for until its result has been handed over.  A failure travels in the place of its
item: the results before it come first, then it is raised, then there is nothing more.
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple


class Stage(NamedTuple):
    """name: of its thread.  work: from what comes in to what goes out.
    around: a context manager that the thread spends its life in.
    drop: called with what came in and will not be worked on, as everything ends early.
    """

    name: str
    work: Callable[[Any], Any]
    around: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    drop: Callable[[Any], None] | None = None


class _Parcel(NamedTuple):
    """What goes from stage to stage: a value, or the error in its place, or the end of all."""

    value: Any = None
    error: BaseException | None = None
    end: bool = False


class Stages:
    """The threads and what they share.  They know it; nobody's iterator do they know, so that one
    which is forgotten can end them."""

    def __init__(self, source: Iterable[Any], stages: Sequence[Stage], depth: int) -> None:
        self._source = iter(source)
        self._stages = list(stages)
        self._depth = depth
        self._changed = threading.Condition()
        self._boxes: list[deque[_Parcel]] = [deque() for _ in range(len(stages) + 1)]
        self._under_way = 0
        self._stopped = False
        self._in_source = False
        context = contextvars.copy_context()
        self._threads = [
            threading.Thread(
                target=context.copy().run, args=(run, *args), name=f"pfb-{name}", daemon=True
            )
            for name, run, args in (
                ("source", self._take, ()),
                *((one.name, self._serve, (i, one)) for i, one in enumerate(self._stages)),
            )
        ]
        for thread in self._threads:
            thread.start()
        _LIVE.add(self)

    @property
    def under_way(self) -> int:
        """Items that were asked of the source and whose result was not handed over yet."""
        return self._under_way

    def next_result(self) -> Any:
        """The next result, in order; waits for it.

        Raises:
            StopIteration: there are no more, or :meth:`close` was called.
            Exception: what the source or a stage raised for the next item.
        """
        box = self._boxes[-1]
        with self._changed:
            self._changed.wait_for(lambda: box or self._stopped)
            if self._stopped:
                raise StopIteration
            parcel = box.popleft()
            self._under_way -= 1
            if parcel.end or parcel.error is not None:
                self.stop()
            self._changed.notify_all()
        if parcel.end or parcel.error is not None:
            self.close()
        if isinstance(parcel.error, StopIteration):  # it would end the loop without a word
            raise RuntimeError("pipeline: a stage raised StopIteration") from parcel.error
        if parcel.error is not None:
            raise parcel.error
        if parcel.end:
            raise StopIteration
        return parcel.value

    def close(self) -> None:
        """Ends the threads; results that nobody has taken are lost.  Idempotent.

        Waits for the work that is being done, but not for a source that gives no next item: its
        thread ends by itself when the source does answer.
        """
        self.stop()
        for thread in self._threads[1 if self._in_source else 0 :]:
            if thread is not threading.current_thread():
                thread.join()

    def stop(self) -> None:
        """Lets the threads end after what they are doing; waits for nothing."""
        with self._changed:
            self._stopped = True
            for number, box in enumerate(self._boxes):
                while box:
                    self._drop(number, box.popleft())
            self._changed.notify_all()

    # -- the threads ------------------------------------------------------------------------------

    def _take(self) -> None:
        """Hands the items of the source to the first stage."""
        source, self._source = self._source, iter(())  # nobody else's, so that it goes in the end
        last = False
        while not last and self._may_take():
            try:
                parcel = _Parcel(next(source))
            except StopIteration:
                parcel = _Parcel(end=True)
            except BaseException as error:  # it is raised where the consumer meets the item
                parcel = _Parcel(error=error)
            last = parcel.end or parcel.error is not None
            with self._changed:
                self._in_source = False
                self._put(0, parcel)

    def _may_take(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._under_way < self._depth)
            if self._stopped:
                return False
            self._under_way += 1
            self._in_source = True
            return True

    def _serve(self, number: int, stage: Stage) -> None:
        """Works on what comes out of box ``number``, and fills the next."""
        box = self._boxes[number]
        with stage.around():
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: box or self._stopped)
                    if self._stopped:
                        return
                    parcel = box.popleft()
                if not parcel.end and parcel.error is None:
                    try:
                        parcel = _Parcel(stage.work(parcel.value))
                    except BaseException as error:  # it is raised where the consumer meets the item
                        parcel = _Parcel(error=error)
                with self._changed:
                    self._put(number + 1, parcel)
                if parcel.end or parcel.error is not None:
                    return

    def _put(self, number: int, parcel: _Parcel) -> None:
        if self._stopped:
            self._drop(number, parcel)
            return
        self._boxes[number].append(parcel)
        self._changed.notify_all()

    def _drop(self, number: int, parcel: _Parcel) -> None:
        drop = self._stages[number].drop if number < len(self._stages) else None
        if drop is not None and not parcel.end and parcel.error is None:
            drop(parcel.value)


class Results(Iterator[Any]):
    """The results of :class:`Stages`; ends them when it is closed, forgotten, or at an end."""

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        # The collector may come by in a thread of theirs: no waiting.
        weakref.finalize(self, stages.stop).atexit = False

    def __next__(self) -> Any:
        return self._stages.next_result()

    def __enter__(self) -> Results:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def under_way(self) -> int:
        """Items that were asked of the source and whose result was not handed over yet."""
        return self._stages.under_way

    def close(self) -> None:
        """Ends the threads; see :meth:`Stages.close`.  Idempotent."""
        self._stages.close()


_LIVE: weakref.WeakSet[Stages] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Before the interpreter goes: a thread inside a kernel would not survive it."""
    for stages in list(_LIVE):
        stages.close()
