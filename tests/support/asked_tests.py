"""Stand in for a judged test, where only how its new processes are started counts."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace


def asked_test(room, start=None, alone=nullcontext, seconds=60.0):
    """room: for how many processes; start: takes a request, gives a process; alone: the device's lock."""
    return SimpleNamespace(
        room=room,
        start=start,
        alone=alone,
        peak=None,
        tell=lambda _: None,
        test=SimpleNamespace(fresh_seconds=seconds, file=Path("t.py")),
        request=lambda kind, **fields: kind("cpu", **fields),
    )
