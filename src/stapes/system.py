"""What the machine gives this process: processors and memory, containers' limits included."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")


def default_threads() -> int:
    """Processors in the affinity mask, or the container's CPU quota when that is smaller."""
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every platform
        allowed = os.cpu_count() or 1
    return max(1, min(allowed, _cgroup_cpus() or allowed))


def available_memory_bytes() -> int | None:
    """Memory that can still be taken without swapping, in bytes; None where it cannot be read."""
    limits = [limit for limit in (_meminfo_available(), _cgroup_memory_left()) if limit is not None]
    return min(limits) if limits else None


def _cgroup_cpus() -> int | None:
    """Whole processors of the cgroup's quota (v2 cpu.max, v1 cfs quota), rounded up."""
    try:
        quota, period = (_CGROUP / "cpu.max").read_text().split()[:2]
    except (OSError, ValueError):
        try:
            quota = (_CGROUP / "cpu/cpu.cfs_quota_us").read_text().strip()
            period = (_CGROUP / "cpu/cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    if not quota.isdigit() or not period.isdigit() or int(period) == 0:
        return None  # "max" or -1: no quota
    return max(1, -(-int(quota) // int(period)))


def _meminfo_available() -> int | None:
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _cgroup_memory_left() -> int | None:
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = (_CGROUP / "memory.current").read_text().strip()
    except OSError:
        return None
    return max(0, int(limit) - int(used)) if limit.isdigit() and used.isdigit() else None
