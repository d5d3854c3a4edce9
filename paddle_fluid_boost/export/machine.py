"""The machine in words, as a bundle's card names it."""

from __future__ import annotations

import platform


def machine() -> str:
    """Processor and architecture, e.g. ``"AMD EPYC 9B45, x86_64"``."""
    return f"{_processor()}, {platform.machine()}"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass  # not Linux: the general name below will do
    return platform.processor() or "unknown processor"
