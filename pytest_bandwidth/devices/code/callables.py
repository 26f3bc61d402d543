"""Identify a callable's code: by what the test says of it, or by itself where it tells what it does."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from pytest_bandwidth.devices.base import AddressedDevice
from pytest_bandwidth.devices.code.around import code_around
from pytest_bandwidth.devices.code.launch import Addresses, are_plain, arguments_digest, nowhere
from pytest_bandwidth.devices.code.numba_functions import function_digest
from pytest_bandwidth.devices.code.python_functions import CodeDevice, known_function
from pytest_bandwidth.domain.code.identity import CodeIdentity, MeasuredCode, digest


def call_digest(
    function: Callable[..., Any],
    args: Sequence[Any],
    keywords: Mapping[str, Any],
    device: CodeDevice | None = None,
    opaque: Collection[int | str] = (),
) -> str:
    """Hash a call by its arguments and by what the function was made with, where files identify its code.

    device, opaque: as in `callable_code`.
    """
    addresses = _addresses(device, opaque)
    return digest(arguments_digest(args, keywords, addresses), *code_around(function, addresses))


def callable_code(
    function: Callable[..., Any],
    args: Sequence[Any],
    keywords: Mapping[str, Any],
    said: bytes | str | None,
    device: CodeDevice | None = None,
    opaque: Collection[int | str] = (),
) -> MeasuredCode:
    """Identify ``function(*args, **keywords)``; unknown where nothing tells for sure what it does.

    said: what identifies its code, such as the hash of a library; the function's own bytecode goes with it.
    device: identifies the launches that the function holds. opaque: arguments that identify nothing.
    """
    addresses = _addresses(device, opaque)
    if said is not None:
        identity = digest("said", said, *code_around(function, addresses))
        return MeasuredCode(CodeIdentity(function=identity, launch=arguments_digest(args, keywords, addresses)))
    told = {place: value for place, value in enumerate(args) if place not in opaque}
    given = (*told.values(), *(value for name, value in keywords.items() if name not in opaque))
    found = function_digest(function) if are_plain(given) else None
    if found is not None:
        return MeasuredCode(CodeIdentity(function=found, launch=arguments_digest(args, keywords, addresses)))
    known = known_function(function, given, device)
    if known is None:
        return MeasuredCode()
    launch = digest(arguments_digest((*args, *known.held), keywords, addresses), *known.launches)
    machine_code = digest(*known.machine_code) if known.machine_code else None
    return MeasuredCode(CodeIdentity(function=known.digest, sass=machine_code, launch=launch))


def _addresses(device: CodeDevice | None, opaque: Collection[int | str]) -> Addresses:
    return Addresses(device.is_memory if isinstance(device, AddressedDevice) else nowhere, opaque)
