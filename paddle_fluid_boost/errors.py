"""The exceptions this package raises on purpose, and nothing else.

A *refusal* is not an error: code that cannot be compiled safely stays dynamic and the reason is
kept in a record (see ``report/records.py``).  Exceptions are for the person who calls us wrongly.
"""

from __future__ import annotations


class BoostError(Exception):
    """Base class of every exception that paddle_fluid_boost raises on purpose."""


class OptionError(BoostError, ValueError):
    """An option has a wrong name or a value outside its range."""


class SpecError(BoostError, ValueError):
    """An input specification that no call could satisfy, or that does not fit the function."""


class UnsupportedPaddleError(BoostError, ImportError):
    """Paddle is missing, or lacks something this package needs."""


class CaptureRefused(BoostError):
    """A call cannot be compiled without a risk to its result; carries the reason.

    It never reaches the user: the worker turns it into a refusal record.
    """

    def __init__(self, reason: str, where: str = "", *, permanent: bool = False) -> None:
        super().__init__(f"{reason} ({where})" if where else reason)
        self.reason = reason
        self.where = where
        #: True when nothing but a change of the user's code can lift the refusal.
        self.permanent = permanent


class PoolError(BoostError, RuntimeError):
    """The block pool is missing, or memory of it was freed twice or written outside of its blocks.

    Exhaustion is a ``MemoryError``.
    """


class EngineError(BoostError):
    """An engine could not build or run a program; the message says what it met."""


class ReportError(BoostError):
    """A report cannot be written in the form asked for; the message says what is missing."""


class ExportError(BoostError):
    """An export cannot be done; the message says what to change.

    usage: the arguments are at fault, and not the model.
    """

    def __init__(self, message: str, *, usage: bool = False) -> None:
        super().__init__(message)
        self.usage = usage


class BundleError(BoostError, ValueError):
    """A bundle is damaged, not a bundle, of another version, or does not fit the call."""


class LibraryError(BoostError, ValueError):
    """A file of the hardware library is wrong; the message names file and key, what was got and
    what is needed."""
