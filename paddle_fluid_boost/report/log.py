"""Logging under ``paddle_fluid_boost``: quiet by default, by channel on request.

``PFB_LOG=compiles,guards,policy`` (or ``all``), in the style of TORCH_LOGS, writes what the
channels say to standard error.
"""

from __future__ import annotations

import logging

from ..options import LOG_CHANNELS, on_change, split_list

_ROOT = logging.getLogger("paddle_fluid_boost")
_handler = logging.StreamHandler()
_handler.setFormatter(logging.Formatter("[pfb %(name)s] %(message)s"))


def set_channels(text: str) -> None:
    """Turns on the channels in ``text`` (comma separated, ``all``) and turns the others off."""
    wanted = set(split_list(text))
    if "all" in wanted:
        wanted = set(LOG_CHANNELS)
    _ROOT.setLevel(logging.WARNING)  # Paddle configures the root logger to show everything
    for channel in LOG_CHANNELS:
        logger = _ROOT.getChild(channel)
        logger.setLevel(logging.INFO if channel in wanted else logging.NOTSET)
        logger.propagate = channel not in wanted
        if channel in wanted and _handler not in logger.handlers:
            logger.addHandler(_handler)
        elif channel not in wanted and _handler in logger.handlers:
            logger.removeHandler(_handler)


on_change("log", set_channels)
