"""Heat, clock and battery, where the machine tells.  Virtual machines mostly do not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from . import files


@dataclass(frozen=True)
class Sensors:
    """What can be read at this moment.

    celsius: (sensor, degrees), the hottest first.
    mhz / max_mhz: clock of the first core now, and its highest; None where it is not told.
    governor: the kernel's policy for the clock, e.g. ``"powersave"``; "" where it is not told.
    battery_percent: charge of the first battery, None without one.
    on_battery: whether the machine draws on it.
    """

    celsius: tuple[tuple[str, float], ...] = ()
    mhz: float | None = None
    max_mhz: float | None = None
    governor: str = ""
    battery_percent: int | None = None
    on_battery: bool = False


def read_sensors(root: Path = Path("/")) -> Sensors:
    """Asks ``/sys`` and ``/proc`` below ``root``; a few milliseconds."""
    frequency = root / "sys/devices/system/cpu/cpu0/cpufreq"
    now, highest = (files.number(frequency / n) for n in ("scaling_cur_freq", "cpuinfo_max_freq"))
    percent, discharging = _battery(root / "sys/class/power_supply")
    return Sensors(
        celsius=_temperatures(root),
        mhz=now / 1e3 if now else _cpuinfo_mhz(root),  # the kernel counts in kHz
        max_mhz=highest / 1e3 if highest else None,
        governor=files.text(frequency / "scaling_governor"),
        battery_percent=percent,
        on_battery=discharging,
    )


def _temperatures(root: Path) -> tuple[tuple[str, float], ...]:
    found: list[tuple[str, float]] = []
    for zone in files.numbered(root / "sys/class/thermal", "thermal_zone"):
        _add(found, files.text(zone / "type") or zone.name, files.number(zone / "temp"))
    for chip in files.numbered(root / "sys/class/hwmon", "hwmon"):
        name = files.text(chip / "name") or chip.name
        for reading in sorted(chip.glob("temp*_input")):
            label = files.text(chip / reading.name.replace("_input", "_label"))
            _add(found, f"{name} {label}".strip(), files.number(reading))
    return tuple(sorted(found, key=lambda item: -item[1]))


def _add(found: list[tuple[str, float]], name: str, millidegrees: int | None) -> None:
    # A sensor that is not connected answers 0, or something below all winters.
    if millidegrees is not None and -60_000 < millidegrees < 200_000 and millidegrees != 0:
        found.append((name, millidegrees / 1e3))


def _cpuinfo_mhz(root: Path) -> float | None:
    for line in files.text(root / "proc/cpuinfo").splitlines():
        if line.startswith("cpu MHz"):
            try:
                return float(line.partition(":")[2])
            except ValueError:
                return None
    return None


def _battery(folder: Path) -> tuple[int | None, bool]:
    try:
        supplies = sorted(folder.iterdir())
    except OSError:
        return None, False
    for supply in supplies:
        # A mouse's battery has the scope "Device".
        if files.text(supply / "type") == "Battery" and files.text(supply / "scope") != "Device":
            status = files.text(supply / "status")
            return files.number(supply / "capacity"), status == "Discharging"
    return None, False
