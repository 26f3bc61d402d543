"""Distinguish exceptions of the user's own code from the device's errors."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from itertools import islice
from pathlib import Path
from threading import Thread
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

import pytest

from pytest_bandwidth.devices.base import Workload
from pytest_bandwidth.domain.errors import BandwidthError, UsageError
from pytest_bandwidth.domain.user_code import named_failures

# So many items of a list or mapping that a callable returned are checked.
MOST_LOOKED_AT = 1000
# The compiler marks the place in the last lines.
MOST_LINES_OF_COMPILER = 10


# Triton's messages at usual first mistakes, with the remedy.
_HINTS = {
    "0 active drivers": "Triton finds no GPU: --bandwidth-device=traffic counts its kernels without one",
    "failed to specialize argument of type": "Triton takes arrays of bandwidth.random and bandwidth.empty "
    "(fill one by x[:] = ...), and tensors of PyTorch",
}


class WorkloadFailed(BandwidthError):
    """Raised where a measured callable raised; the original exception is the cause, ``what`` names the callable."""

    def __init__(self, what: str, error: BaseException) -> None:
        text = _of_compiler(error) or " ".join(str(error).split())[:400]
        hint = next((f"; {remedy}" for sign, remedy in _HINTS.items() if sign in text), "")
        super().__init__(f"{what} raised {type(error).__name__}: {text}{hint}")
        self.what = what


def _of_compiler(error: Any) -> str:
    """Return the message of Triton's compiler, with its lines that hold the caret; "" for any other error."""
    if not hasattr(error, "src") or not hasattr(error, "error_message"):
        return ""
    frames = [frame.f_locals.get("self") for frame, _ in traceback.walk_tb(error.__traceback__)]
    kernel: Any = next((one for one in frames if hasattr(one, "def_file_line_number")), None)
    while hasattr(error.__cause__, "error_message"):  # a function that the kernel calls
        error = error.__cause__
    named = re.match(r"def (\w+)", error.src or "")
    name, line = named[1] if named else "", getattr(error.node, "lineno", None)
    place = f"kernel {name}" if name else "a kernel"
    known: tuple[Any, ...] = (kernel, getattr(kernel, "__globals__", {}).get(name))
    for one in known:
        if line is not None and hasattr(one, "def_file_line_number") and one.src == error.src:
            place = f"kernel {name} ({Path(one.file_name).name}:{one.def_file_line_number + line - 1})"
    reason = error.error_message or ""
    lines = str(error).removesuffix(reason).rstrip().splitlines()[line is not None :]
    kept = (f"\n    {one[:200]}" for one in lines[-MOST_LINES_OF_COMPILER:])
    return f"{place}: {' '.join(reason.split())[:400]}{''.join(kept)}"


def called_hook(config: pytest.Config, name: str, **arguments: Any) -> Any:
    """Call one of the plugin's own hooks. Raises UserHookFailed for what an implementation raises."""
    with named_failures(name):
        return getattr(config.hook, name)(config=config, **arguments)


def with_named_errors(workload: Workload) -> Workload:
    """Make the workload raise its own exceptions as WorkloadFailed, so that they are not taken for the device's."""
    name = f" ({workload.label})" if workload.label else ""
    return replace(
        workload,
        call=_guarded(f"the measured callable{name}", workload.call),
        setup=None if workload.setup is None else _guarded(f"setup{name}", workload.setup),
        interleaved=tuple(_guarded(f"the callable compared with it{name}", other) for other in workload.interleaved),
        nothing=None if workload.nothing is None else _guarded("nothing", workload.nothing),
    )


def _guarded(what: str, call: Callable[[], object]) -> Callable[[], object]:
    first = True

    def run() -> object:
        nonlocal first
        try:
            value = call()
        except (BandwidthError, pytest.exit.Exception):  # of pytest's outcomes only that one is an Exception
            raise
        except (Exception, SystemExit) as error:  # all that a user's callable may raise
            raise WorkloadFailed(what, error) from error
        if first:  # once: it is inside the timed interval of a host
            first = False
            _refuse_unrun(what, value)
        return value

    return run


def _refuse_unrun(what: str, value: object) -> None:
    """Raise UsageError where a callable returned unfinished work, also as an item of a list or mapping."""
    held = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    for one in (value, *islice(held, MOST_LOOKED_AT)):
        # A thread, or any library's future or task.
        is_future = isinstance(one, Future) or type(one).__name__.endswith(("Future", "Task"))
        done = getattr(one, "done", None) if is_future else None
        if one.is_alive() if isinstance(one, Thread) else callable(done) and not done():
            raise UsageError(
                f"{what} returned a {type(one).__name__} that has not finished: its work would not be timed; "
                "expected a callable that waits for it"
            )
    if not isinstance(value, (CoroutineType, GeneratorType, AsyncGeneratorType)):
        return
    if isinstance(value, CoroutineType):
        value.close()  # else Python warns that it was never awaited
    kind = type(value).__name__.replace("_", " ")
    raise UsageError(
        f"{what} returned a {kind}, whose body has not run: expected a callable that has done its work when it returns"
    )
