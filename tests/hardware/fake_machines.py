"""Folders with the files of /proc and /sys as other machines have them."""

from __future__ import annotations

from pathlib import Path

#: What a small Xeon with AMX says of itself, shortened.
XEON_FLAGS = (
    "fpu mmx sse sse2 pni ssse3 sse4_1 sse4_2 popcnt cx16 lahf_lm avx avx2 fma f16c bmi1 bmi2 "
    "abm movbe xsave avx512f avx512dq avx512cd avx512bw avx512vl avx512_vnni avx512_bf16 "
    "avx512_fp16 amx_bf16 amx_tile amx_int8"
)


def write(root: Path, files: dict[str, str]) -> Path:
    """Writes ``files`` (path -> text) below ``root``."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return root


def xeon(root: Path) -> Path:
    """Two cores of two threads each, a quota of 1.5 cores, 2 GiB of 8, two sensors."""
    cpuinfo = "\n\n".join(
        f"processor\t: {i}\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) 8480\n"
        f"cpu MHz\t\t: 2000.5\nflags\t\t: {XEON_FLAGS}"
        for i in range(4)
    )
    cpu = "sys/devices/system/cpu"
    files = {
        "proc/cpuinfo": cpuinfo + "\n",
        "proc/meminfo": "MemTotal:        8388608 kB\nMemAvailable:    4194304 kB\n",
        "proc/self/cgroup": "0::/pod/box\n",
        "sys/fs/cgroup/pod/box/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/pod/box/memory.max": "max\n",
        "sys/fs/cgroup/pod/memory.max": f"{2 << 30}\n",
        "sys/class/thermal/thermal_zone0/type": "x86_pkg_temp\n",
        "sys/class/thermal/thermal_zone0/temp": "61500\n",
        "sys/class/hwmon/hwmon3/name": "nvme\n",
        "sys/class/hwmon/hwmon3/temp1_input": "70000\n",
        "sys/class/hwmon/hwmon3/temp1_label": "Composite\n",
        "sys/class/hwmon/hwmon3/temp2_input": "garbage\n",
        "sys/class/power_supply/BAT0/type": "Battery\n",
        "sys/class/power_supply/BAT0/capacity": "83\n",
        "sys/class/power_supply/BAT0/status": "Discharging\n",
        f"{cpu}/cpu0/cpufreq/scaling_cur_freq": "1900000\n",
        f"{cpu}/cpu0/cpufreq/cpuinfo_max_freq": "3800000\n",
        f"{cpu}/cpu0/cpufreq/scaling_governor": "powersave\n",
        f"{cpu}/cpu0/cache/index0/level": "1\n",
        f"{cpu}/cpu0/cache/index0/type": "Data\n",
        f"{cpu}/cpu0/cache/index0/size": "48K\n",
        f"{cpu}/cpu0/cache/index0/shared_cpu_list": "0,2\n",
        f"{cpu}/cpu0/cache/index3/level": "3\n",
        f"{cpu}/cpu0/cache/index3/type": "Unified\n",
        f"{cpu}/cpu0/cache/index3/size": "105M\n",
        f"{cpu}/cpu0/cache/index3/shared_cpu_list": "0-3\n",
    }
    for i in range(4):
        files[f"{cpu}/cpu{i}/topology/core_id"] = f"{i % 2}\n"
        files[f"{cpu}/cpu{i}/topology/physical_package_id"] = "0\n"
    return write(root, files)


def phone(root: Path) -> Path:
    """Four Cortex-A55 and four Cortex-A76; version 1 of control groups, without a limit."""
    parts = ["0xd05"] * 4 + ["0xd0b"] * 4
    cpuinfo = "\n\n".join(
        f"processor\t: {i}\nFeatures\t: fp asimd aes fphp asimdhp asimddp\n"
        f"CPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: {part}"
        for i, part in enumerate(parts)
    )
    files = {
        "proc/cpuinfo": cpuinfo + "\n",
        "proc/meminfo": "MemTotal:        8000000 kB\n",
        "proc/self/cgroup": "4:memory:/\n2:cpu,cpuacct:/\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    }
    for i in range(8):
        cpu = f"sys/devices/system/cpu/cpu{i}"
        files[f"{cpu}/topology/core_id"] = f"{i % 4}\n"
        files[f"{cpu}/topology/physical_package_id"] = f"{i // 4}\n"
        files[f"{cpu}/cpu_capacity"] = "1024\n" if i >= 4 else "400\n"
    return write(root, files)
