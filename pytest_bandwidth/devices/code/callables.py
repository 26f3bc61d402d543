"""Identify a callable's code: by what the test says of it, or by itself where it is a Numba function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_bandwidth.devices.code.launch import are_plain, arguments_digest
from pytest_bandwidth.devices.code.numba_functions import function_digest
from pytest_bandwidth.domain.code.identity import CodeIdentity, MeasuredCode, digest


def callable_code(
    function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any], said: bytes | str | None
) -> MeasuredCode:
    """Identify ``function(*args, **keywords)``; unknown where nothing tells for sure what it does.

    said: what identifies its code, such as the bytes of a cubin.
    """
    if said is not None:
        return MeasuredCode(CodeIdentity(function=digest("said", said), launch=arguments_digest(args, keywords)))
    found = function_digest(function) if are_plain((*args, *keywords.values())) else None
    if found is None:
        return MeasuredCode()
    return MeasuredCode(CodeIdentity(function=found, launch=arguments_digest(args, keywords)))
