"""Memory checks before allocation, and the fate of freed memory."""

import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path

_MOST = 10**24  # bytes that a message counts: more need not be told apart, nor fit into a float


def require_memory(bytes_needed: int, available: int | None, field: str) -> None:
    """Refuses a request that does not fit into memory, before any work is done.

    Args:
        bytes_needed: bytes that will be allocated.
        available: bytes that can be had, as `available_memory()` says; None, when unknown, checks nothing.
        field: the configuration field to lower; empty where there is none.

    Raises:
        MemoryError: with both numbers and the field.
    """
    if available is not None and bytes_needed > available:
        remedy = f"lower {field}, to {available / bytes_needed:.1%} of its value at most"
        needed, over = min(bytes_needed, _MOST), "over " * (bytes_needed > _MOST)
        raise MemoryError(
            f"{over}{needed:,} bytes needed ({needed / 2**30:.2f} GiB), {available:,} available "
            f"({available / 2**30:.2f} GiB): {remedy if field else 'free some, or take a machine with more'}."
        )


def available_memory() -> int | None:
    """Returns the bytes a process can still allocate without swapping, or None where the system does not say.

    The lower of Linux's `MemAvailable` and what the memory limits of the process's control groups leave.
    """
    try:
        fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        available = int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        for pages in ("SC_AVPHYS_PAGES", "SC_PHYS_PAGES"):
            try:
                return os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")
            except (AttributeError, OSError, ValueError):
                continue
        return None
    return min([available, *_left_by_control_groups()])


def keep_freed_memory() -> None:
    """Keeps what this process frees for what it asks for next; to be called before there are threads.

    An update of the Atari network asks for 36 MB and frees them. The GNU C library gives so much back to the system at
    once, and gets it anew, page by page and cleared, for the next update: a third of its time. Elsewhere, and with
    other C libraries, nothing is changed.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(-4, 0)  # M_MMAP_MAX: no block by a mapping of its own, which ends with it
        mallopt(-8, 1)  # M_ARENA_MAX: no arenas of threads, which are given back when they are empty
        mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD: 2 GiB may lie free, a replay that is gone may not
        mallopt(-2, 1 << 26)  # M_TOP_PAD: what the system is asked for at a time


def _left_by_control_groups(proc: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup") -> Iterator[int]:
    """Yields the bytes that each limited group, or group above it, leaves; file cache it can drop counts as free."""
    try:
        groups = [line.split(":", 2) for line in Path(proc).read_text().splitlines()]
    except OSError:
        return
    for _, controllers, path in groups:
        if controllers == "":
            mount, limit, usage, cache = Path(root), "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            mount, limit, usage = Path(root) / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
            cache = "total_inactive_file"
        else:
            continue
        group = mount / path.lstrip("/")
        for folder in (group, *group.parents):
            if not folder.is_relative_to(mount):
                break
            try:
                statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                used = int((folder / usage).read_text()) - int(statistics[cache])
                yield max(int((folder / limit).read_text()) - used, 0)
            except (OSError, KeyError, ValueError):
                continue  # no such file here, or no limit ("max")
