"""Let one process of a user measure on a device at a time."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import DeviceUnavailable
from pytest_bandwidth.options.options import own_command
from pytest_bandwidth.storage.own_folders import what_is_wrong

LARGEST_HOLDER_BYTES = 4096
# A wait is usual while another test is measured, and worth a line in a log only when it lasts.
LONG_WAIT_SECONDS = 5.0


def lock_folder() -> Path:
    """Return the folder of this user's lock files; create it where it is missing.

    One user's: a file that all users may lock, any of them can hold for ever. What other users measure keeps the device
    busy, which is seen.

    In the temporary folder, since all of a user's processes find it there, whatever started them: XDG_RUNTIME_DIR is
    not set in every one, and goes with the last log-out. Where the name is taken there, by another user or by anything
    but a folder, it is XDG_RUNTIME_DIR, or /run/user/UID, where no other user can take one.
    Raises DeviceUnavailable where both are taken or cannot be written: nothing is measured without a lock.
    """
    user = os.getuid()
    folder = Path(tempfile.gettempdir()) / f"pytest-bandwidth-{user}"
    found = what_is_wrong(folder)
    if found is None:
        return folder
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{user}") / "pytest-bandwidth"
    if runtime.is_absolute() and what_is_wrong(runtime) is None:
        return runtime
    raise DeviceUnavailable(
        f"{folder} is not a folder of this user's, for locks that nobody else writes to ({found}): "
        "remove it, or set TMPDIR"
    )


class DeviceLock:
    """Lock a device among processes of one user; reentrant. What only counts needs no lock: nobody disturbs it.

    Processes wait in a line, by a second lock, so that one that measures often does not take every turn.
    held_by_parent: the process that started this one holds it. advice: what the user can do after a wait in vain.
    """

    def __init__(
        self,
        identity: DeviceIdentity,
        timeout_seconds: float,
        *,
        held_by_parent: bool = False,
        advice: str = "wait for it, end it, or raise bandwidth_lock_timeout",
    ) -> None:
        self._is_needed = not (held_by_parent or identity.counts_only)
        if not self._is_needed:
            return
        # Devices without a serial of their own (a host) are one device a machine.
        text = f"{identity.kind} {identity.serial}"
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        self._device = identity.name
        self._timeout_seconds = timeout_seconds
        self._advice = advice
        folder = lock_folder()
        self._lock = FileLock(folder / f"{identity.kind}-{name}.lock", mode=0o600)
        self._line = FileLock(folder / f"{identity.kind}-{name}.line", mode=0o600)
        self._holder = folder / f"{identity.kind}-{name}.holder"

    @contextmanager
    def held(
        self, on_wait: Callable[[str], None] = lambda _: None, on_long_wait: Callable[[str], None] = lambda _: None
    ) -> Iterator[None]:
        """Wait for the lock and hold it. Raises DeviceUnavailable that names the holder after the time-out.

        on_wait, on_long_wait: get the holder in words, at once and after LONG_WAIT_SECONDS, once a wait.
        """
        if not self._is_needed or self._lock.is_locked:  # the head of the line waits for this very process
            yield
            return
        begun, untold = time.monotonic(), [(0.0, on_wait), (LONG_WAIT_SECONDS, on_long_wait)]
        try:
            self._wait_for(self._line, begun, untold)
            try:
                self._wait_for(self._lock, begun, untold)
            finally:
                self._line.release()
        except Timeout:
            raise DeviceUnavailable(
                f"{self._device} was not free for {self._timeout_seconds:.0f} s and is being measured by "
                f"{self._who_holds()}: {self._advice}"
            ) from None
        try:
            with suppress(OSError):  # it only serves a message of others
                # It ends up in others' logs.
                self._holder.write_text(json.dumps({"pid": os.getpid(), "command": own_command(sys.argv)[:400]}))
            yield
        finally:
            with suppress(OSError):
                self._holder.unlink()
            self._lock.release()

    def _wait_for(self, lock: BaseFileLock, begun: float, untold: list[tuple[float, Callable[[str], None]]]) -> None:
        """Acquire one of the two locks of a wait that began at `begun`. `untold`: what to call then, and when."""
        while untold and untold[0][0] < self._timeout_seconds:
            after, tell = untold[0]
            try:
                lock.acquire(timeout=max(0.0, begun + after - time.monotonic()))
                return
            except Timeout:
                del untold[0]
                tell(f"waits for {self._who_holds()}, which measures on {self._device}")
        lock.acquire(timeout=max(0.0, begun + self._timeout_seconds - time.monotonic()))

    def _who_holds(self) -> str:
        try:
            holder = json.loads(self._holder.read_text()[:LARGEST_HOLDER_BYTES])
            return f"process {int(holder['pid'])} ({str(holder['command'])[:200]})"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"
