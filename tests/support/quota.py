"""Make a control group whose processes get a share of the processors' time, as a container's do."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PERIOD_US = 100_000


@contextmanager
def quota_group(share: float, root: Path = Path("/")) -> Iterator[Path | None]:
    """Make a group with that share of all processors' time, for the block; give None where this user may not.

    A process joins by its number in the group's `cgroup.procs`.
    """
    quota = int((os.cpu_count() or 1) * share * PERIOD_US)
    group = next(filter(None, (_made(place, file, text) for place, file, text in _places(quota, root))), None)
    try:
        yield group
    finally:
        if group is not None:
            _remove(group)


def _places(quota: int, root: Path) -> Iterator[tuple[Path, str, str]]:
    """Give folders where a group can lie, with the file of its quota and what to write there."""
    try:
        own = [line.split(":", 2) for line in (root / "proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return
    mounted = root / "sys/fs/cgroup"
    for _, controllers, path in own:
        if "cpu" in controllers.split(","):
            yield mounted / controllers / path.lstrip("/"), "cpu.cfs_quota_us", str(quota)
        if not controllers:  # version 2, where a group that has processes of its own may not share out among others
            place = mounted / path.lstrip("/")
            yield from ((folder, "cpu.max", f"{quota} {PERIOD_US}") for folder in (place, place.parent))


def _made(place: Path, file: str, text: str) -> Path | None:
    group = place / f"pytest-bandwidth-{os.getpid()}"
    with suppress(OSError):
        group.mkdir()
        try:
            if (group / file).is_file():
                (group / file).write_text(text)
                return group
        except OSError:
            pass
        _remove(group)
    return None


def _remove(group: Path) -> None:
    for _ in range(100):
        with suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.1)  # until its last process is gone
