"""Call users' code, such as hooks, and check what it returns; an error is one line with the code's name and place."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from pytest_bandwidth.domain.errors import BandwidthError, UsageError
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.registry import hooks

_PACKAGE = Path(__file__).resolve().parent.parent
_SUITE = _PACKAGE / "suite"
Kind = TypeVar("Kind")


class UserHookFailed(UsageError):
    """Raised where a hook of a conftest.py or plugin raised; the original exception is the cause."""


def place_of(trace: TracebackType | None, *, or_library: bool = False) -> str:
    """Return ``file.py:12: `` of the innermost frame in the user's own code; empty without such a frame.

    or_library: whether a library's innermost frame will do, where the user's code is an installed distribution.
    """
    found, stdlib = "", Path(sysconfig.get_path("stdlib"))
    for frame in reversed(traceback.extract_tb(trace)):
        path = Path(frame.filename)
        if (_PACKAGE in path.parents and _SUITE not in path.parents) or path.suffix != ".py" or not path.exists():
            continue
        place = f"{path.name}:{frame.lineno}: "
        if stdlib not in path.parents and "site-packages" not in path.parts:
            return place
        found = found or place
    return found if or_library else ""


def failure(name: str, error: Exception) -> BandwidthError:
    """Return the error for what users' code raised: the plugin's own errors unchanged. name: the code's."""
    if isinstance(error, BandwidthError):
        return error
    text = " ".join(str(error).split())[:400]
    at = place_of(error.__traceback__, or_library=True)
    return UserHookFailed(f"{at}{name} raised {type(error).__name__}: {text}")


@contextmanager
def named_failures(name: str) -> Iterator[None]:
    """Turn exceptions of users' code into UserHookFailed, except the plugin's own errors. name: the code's."""
    try:
        yield
    except BandwidthError:
        raise
    except Exception as error:
        raise failure(name, error) from error


def hooked(name: str, kind: type[Kind]) -> list[Kind]:
    """Call a hook that returns a list; return all items, the last registered plugin's last. Raises UsageError."""
    hook = getattr(hooks(), name)
    with named_failures(name):
        found = hook()
    # pluggy returns the results of the last registered plugin first.
    return brought(name, reversed(found), kind)


def brought(name: str, found: Iterable[object], kind: type[Kind], called: str | None = None) -> list[Kind]:
    """Return all items of lists that user code returned. Raises UsageError that names the first one of another type.

    name: that of the code that returned them. called: a name for the items, where the type's name is not enough.
    """
    items: list[Kind] = []
    expected = f"expected a list of {called or kind.__name__}"
    for one in found:
        if not isinstance(one, (list, tuple)):
            raise UsageError(f"{name}: found {shown(one)}, {expected}: return one")
        for item in one:
            if not isinstance(item, kind):
                raise UsageError(f"{name}: found {shown(item)} in its list, {expected}: return that")
            items.append(item)
    return items
