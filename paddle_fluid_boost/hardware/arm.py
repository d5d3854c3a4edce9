"""ARM processors: their features from the kernel's bits, their names from the part numbers.

``getauxval`` is asked first: it is what the kernel grants this process, while ``/proc/cpuinfo`` may
be missing, or the host's under an emulator.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

#: Bits of AT_HWCAP and AT_HWCAP2 -> the names /proc/cpuinfo has for them (Linux,
#: arch/arm64/include/uapi/asm/hwcap.h).
_HWCAP = {1: "asimd", 9: "fphp", 10: "asimdhp", 20: "asimddp", 22: "sve", 27: "asimdfhm"}
_HWCAP2 = {1: "sve2", 13: "i8mm", 14: "bf16", 23: "sme"}
_AT_HWCAP, _AT_HWCAP2 = 16, 26

#: "CPU implementer" of /proc/cpuinfo (Linux, arch/arm64/include/asm/cputype.h).
_VENDORS = {
    0x41: "ARM",
    0x46: "Fujitsu",
    0x48: "HiSilicon",
    0x4E: "NVIDIA",
    0x51: "Qualcomm",
    0x61: "Apple",
    0x6D: "Microsoft",
    0xC0: "Ampere",
}
#: (implementer, part) -> micro-architecture, in archspec's spelling where it knows the core.
_PARTS = {
    (0x41, 0xD03): "cortex_a53",
    (0x41, 0xD04): "cortex_a35",
    (0x41, 0xD05): "cortex_a55",
    (0x41, 0xD07): "cortex_a57",
    (0x41, 0xD08): "cortex_a72",
    (0x41, 0xD09): "cortex_a73",
    (0x41, 0xD0A): "cortex_a75",
    (0x41, 0xD0B): "cortex_a76",
    (0x41, 0xD0C): "neoverse_n1",
    (0x41, 0xD0D): "cortex_a77",
    (0x41, 0xD40): "neoverse_v1",
    (0x41, 0xD41): "cortex_a78",
    (0x41, 0xD44): "cortex_x1",
    (0x41, 0xD46): "cortex_a510",
    (0x41, 0xD47): "cortex_a710",
    (0x41, 0xD48): "cortex_x2",
    (0x41, 0xD49): "neoverse_n2",
    (0x41, 0xD4F): "neoverse_v2",
    (0x46, 0x001): "a64fx",
    (0x48, 0xD01): "tsv110",
    (0x61, 0x022): "m1",
    (0x61, 0x023): "m1",
    (0x61, 0x032): "m2",
    (0x61, 0x033): "m2",
}


def kernel_features(getauxval: Callable[[int], int] | None = None) -> frozenset[str]:
    """The features that the kernel grants this process; empty where it cannot be asked."""
    ask = getauxval or _libc_getauxval()
    if ask is None:
        return frozenset()
    first, second = ask(_AT_HWCAP), ask(_AT_HWCAP2)
    named = {name for bit, name in _HWCAP.items() if first >> bit & 1}
    return frozenset(named | {name for bit, name in _HWCAP2.items() if second >> bit & 1})


def vendor_and_core(implementer: str, part: str) -> tuple[str, str]:
    """The names of a core by the numbers in /proc/cpuinfo (``"0x41"``, ``"0xd0c"``); "" for an
    unknown one."""
    try:
        maker, core = int(implementer, 0), int(part, 0)
    except ValueError:
        return "", ""
    return _VENDORS.get(maker, ""), _PARTS.get((maker, core), "")


def _libc_getauxval() -> Callable[[int], int] | None:
    try:
        function = ctypes.CDLL(None).getauxval
    except (OSError, AttributeError, TypeError):  # another libc, or not Linux
        return None
    function.restype, function.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
    return function
