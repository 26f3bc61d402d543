"""List the types of devices, and open a device by its name. Only the chosen device's libraries are loaded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import NoneType
from typing import TYPE_CHECKING

from pytest_bandwidth.domain.device import DeviceIdentity, DeviceType, TimedOn
from pytest_bandwidth.domain.errors import DeviceUnavailable, UsageError
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.domain.user_code import hooked, named_failures
from pytest_bandwidth.registry import later

if TYPE_CHECKING:
    from pytest_bandwidth.devices.base import Device


def device_types() -> dict[str, DeviceType]:
    """Return the types of devices by their kinds, with those of features and conftest.py files.

    Raises UsageError where a hook returns anything else, or a kind that exists.
    """
    found = {_CUDA.kind: _CUDA, _CPU.kind: _CPU}
    for one in sorted(hooked("pytest_bandwidth_devices", DeviceType), key=lambda one: one.kind):
        said = f"pytest_bandwidth_devices: found the device {shown(one.kind)}"
        if one.kind in found:
            raise UsageError(f"{said} twice, expected a kind of its own")
        if not one.kind or any(form.partition(":")[0] != one.kind for form in one.usage.split(", ")):
            raise UsageError(f"{said} with usage={shown(one.usage)}, expected forms of its kind, such as npu, npu:N")
        found[one.kind] = one
    return found


def timed_on(kind: str | None) -> TimedOn:
    """Return what times a kind of device, for files that hold the kind alone; the host for an unknown kind."""
    found = device_types().get(kind or "")
    return "host" if found is None else found.timed_on


def checked_name(text: str) -> str:
    """Return the name of a device if it has a known form. Raises ValueError with the known forms."""
    kind, colon, variant = text.partition(":")
    types = device_types()
    is_known = kind in types and (not colon or (variant and re.fullmatch(types[kind].variants, variant, re.ASCII)))
    if is_known or text == "auto":
        return text
    raise ValueError(f"found {text[:40]!r}, expected {known_names()}")


def known_names() -> str:
    """Return the forms of devices' names, for help and errors: ``auto, cuda, cuda:N or cpu``."""
    *others, last = ("auto", *(form for one in device_types().values() for form in one.usage.split(", ")))
    return f"{', '.join(others)} or {last}"


def open_device(name: str) -> Device:
    """Open a device by its name; ``auto`` is the GPU where CuPy finds one, else the host.

    Raises DeviceUnavailable, one line with the remedy.
    """
    if name == "auto":
        opened: Device
        try:
            opened = _CUDA.open("")
        except DeviceUnavailable:
            opened = _CPU.open("")
        return opened
    try:
        kind, _, variant = checked_name(name).partition(":")
    except ValueError as error:
        raise DeviceUnavailable(f"device: {error}") from None
    if kind in (_CUDA.kind, _CPU.kind):
        built_in: Device = device_types()[kind].open(variant)
        return built_in
    return _opened_plugged(name, device_types()[kind], variant)


def _opened_plugged(name: str, of_type: DeviceType, variant: str) -> Device:
    from pytest_bandwidth.devices.base import Device  # kept out of start-up

    with named_failures(f"the device {name}: opening it"):
        opened = of_type.open(variant)
        identity = opened.identity if isinstance(opened, Device) else None
    if not isinstance(opened, Device):
        raise DeviceUnavailable(f"the device {name}: opening it returned {shown(opened)}, expected a Device")
    if (wrong := _misreported(identity, of_type)) is not None:
        raise DeviceUnavailable(f"the device {name}: {wrong}")
    return opened


def _misreported(identity: object, of_type: DeviceType) -> str | None:
    """Describe an error in a plugged-in device's identity, which baselines and documents need; None without errors."""
    if not isinstance(identity, DeviceIdentity):
        return f"found the identity {shown(identity)}, expected a DeviceIdentity"
    for what in ("kind", "timed_on"):
        found, expected = getattr(identity, what), getattr(of_type, what)
        if found != expected:
            return f"found identity.{what}={shown(found)}, expected {expected!r}, as its DeviceType has it"
    for what, types, named in _REPORTED:
        if not isinstance(found := getattr(identity, what), types):
            return f"found identity.{what}={shown(found)}, expected {named}"
    return None


_REPORTED: tuple[tuple[str, tuple[type, ...], str], ...] = (
    *((what, (str,), "text") for what in ("name", "serial", "variant")),
    *((what, (Mapping,), "a mapping") for what in ("settings", "facts")),
    ("memory_bytes", (int, NoneType), "a number of bytes or None"),
)


_OPEN_CUDA, _OPEN_CPU = later("devices.cuda.device:open_cuda"), later("devices.cpu.device:CpuDevice")
_CUDA = DeviceType("cuda", lambda index: _OPEN_CUDA(int(index or 0)), "gpu", "cuda, cuda:N", r"\d{1,4}")
_CPU = DeviceType("cpu", lambda _: _OPEN_CPU(), "host", "cpu")
