"""The machine in words, as a bundle's card names it."""

from __future__ import annotations

import platform

from ..hardware.processor import processor_name


def machine() -> str:
    """Processor and architecture, e.g. ``"AMD EPYC 9B45, x86_64"``."""
    return f"{processor_name()}, {platform.machine()}"
