"""The files from which programs read what machine they run on, for an emulated ARM processor.

``python make_machine.py FOLDER CPU`` writes ``proc/cpuinfo`` and ``sys/devices/system/cpu`` below
FOLDER.  Runs under the emulator: the features are those that it grants a program.  Without these
files programs read the host's, and ONNX Runtime crashes.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

#: Model of qemu -> CPU implementer and part.
PARTS = {
    "cortex-a53": (0x41, 0xD03),
    "cortex-a72": (0x41, 0xD08),
    "cortex-a76": (0x41, 0xD0B),
    "neoverse-n1": (0x41, 0xD0C),
    "a64fx": (0x46, 0x001),
    "max": (0x00, 0x051),
}
#: By bit of AT_HWCAP, then of AT_HWCAP2 (Linux, arch/arm64/kernel/cpuinfo.c).
_NAMES = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt fcma "
    "lrcpc dcpop sha3 sm3 sm4 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs sb paca pacg",
    "dcpodp sve2 sveaes svepmull svebitperm svesha3 svesm4 flagm2 frint svei8mm svef32mm svef64mm "
    "svebf16 i8mm bf16",
)
_CORES = 2


def main(folder: str, cpu: str) -> None:
    """Writes the files."""
    ask = ctypes.CDLL(None).getauxval
    ask.restype, ask.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
    features = [
        name
        for bits, names in zip((ask(16), ask(26)), _NAMES)
        for bit, name in enumerate(names.split())
        if bits >> bit & 1
    ]
    implementer, part = PARTS[cpu]
    blocks = [
        f"processor\t: {number}\nBogoMIPS\t: 50.00\nFeatures\t: {' '.join(features)}\n"
        f"CPU implementer\t: {implementer:#04x}\nCPU architecture: 8\nCPU variant\t: 0x0\n"
        f"CPU part\t: {part:#05x}\nCPU revision\t: 0\n"
        for number in range(_CORES)
    ]
    files = {"proc/cpuinfo": "\n".join(blocks) + "\n"}
    for name in ("possible", "present", "online"):
        files[f"sys/devices/system/cpu/{name}"] = f"0-{_CORES - 1}\n"
    for name, text in files.items():
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
