"""The processor in words."""

from __future__ import annotations

import platform


def processor_name() -> str:
    """What the processor calls itself, e.g. ``"AMD EPYC 9B45"``; else its architecture."""
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass  # not Linux: the general name below will do
    return platform.processor() or platform.machine()
