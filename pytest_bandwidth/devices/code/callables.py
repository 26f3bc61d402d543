"""Identify a callable's code: by what the test says of it, or by itself where it tells what it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_bandwidth.devices.code.around import code_around
from pytest_bandwidth.devices.code.launch import are_plain, arguments_digest
from pytest_bandwidth.devices.code.numba_functions import function_digest
from pytest_bandwidth.devices.code.python_functions import known_function
from pytest_bandwidth.domain.code.identity import CodeIdentity, MeasuredCode, digest


def call_digest(function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]) -> str:
    """Hash a call by its arguments and by what the function was made with, where files identify its code."""
    return digest(arguments_digest(args, keywords), *code_around(function))


def callable_code(
    function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any], said: bytes | str | None
) -> MeasuredCode:
    """Identify ``function(*args, **keywords)``; unknown where nothing tells for sure what it does.

    said: what identifies its code, such as the bytes of a cubin; the function's own bytecode goes with it.
    """
    if said is not None:
        identity = digest("said", said, *code_around(function))
        return MeasuredCode(CodeIdentity(function=identity, launch=arguments_digest(args, keywords)))
    given = (*args, *keywords.values())
    found = function_digest(function) if are_plain(given) else None
    if found is not None:
        return MeasuredCode(CodeIdentity(function=found, launch=arguments_digest(args, keywords)))
    known = known_function(function, given)
    if known is None:
        return MeasuredCode()
    launch = arguments_digest((*args, *known.held), keywords)
    return MeasuredCode(CodeIdentity(function=known.digest, launch=launch))
