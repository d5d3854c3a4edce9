"""Cores and quotas, on file trees as version 1 and 2 of Linux's control groups show them."""

from __future__ import annotations

import os

import pytest

from paddle_fluid_boost.hardware import cores


def _tree(root, cgroup, files):
    for name, text in {"proc/self/cgroup": cgroup, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("cgroup", "files", "expected"),
    [
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        ("0::/\n", {}, None),
        (
            "0::/a/b\n",
            {"sys/fs/cgroup/a/b/cpu.max": "max 100000", "sys/fs/cgroup/a/cpu.max": "300000 100000"},
            3.0,
        ),
        # The host's path, of which the container sees only the end.
        ("0::/kubepods/pod7\n", {"sys/fs/cgroup/cpu.max": "50000 100000\n"}, 0.5),
        (
            "4:memory:/m\n3:cpuacct,cpu:/docker/x\n",
            {
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            2.0,
        ),
        (
            "3:cpu:/\n",
            {
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            None,
        ),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "nonsense\n"}, None),
    ],
)
def test_quota(tmp_path, cgroup, files, expected):
    _tree(tmp_path, cgroup, files)
    assert cores.cpu_quota(tmp_path) == expected


def test_no_control_groups(tmp_path):
    assert cores.cpu_quota(tmp_path) is None


@pytest.mark.parametrize(("quota", "expected"), [(None, 8), (1.5, 2), (0.2, 1), (64.0, 8)])
def test_threads_fit_the_quota(monkeypatch, quota, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(cores, "cpu_quota", lambda: quota)
    assert cores.usable_cores() == expected
