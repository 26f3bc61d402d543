"""Open a device by its name. Only the chosen device's libraries are loaded."""

from __future__ import annotations

from collections.abc import Callable

from pytest_bandwidth.devices.base import Device
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import DeviceUnavailable


def open_device(name: str) -> Device:
    """Open ``auto``, ``cuda``, ``cuda:N``, ``cpu``, ``tinygrad:METAL``, ``traffic`` or ``traffic:ARCH``.

    A backend of tinygrad may have a card's number (``tinygrad:AMD:1``), or be left to tinygrad (``tinygrad``).

    ``auto`` is the GPU where CuPy finds one, else the host. Raises DeviceUnavailable, one line with the remedy.
    """
    kind, _, index = name.partition(":")
    openers: dict[str, Callable[[], Device]] = {
        "auto": _open_best,
        "cuda": lambda: _open_cuda(int(index or 0)),
        "cpu": _open_cpu,
        "tinygrad": lambda: _open_tinygrad(index or None),
        "traffic": lambda: _open_traffic(index or None),
    }
    if kind not in openers:
        raise DeviceUnavailable(
            f"found device {name!r}, expected one of {', '.join(openers)}, cuda:N or tinygrad:METAL"
        )
    return openers[kind]()


def name_of(identity: DeviceIdentity) -> str:
    """Return a name that opens the same device in another process."""
    if identity.counts_only:
        return f"traffic:{identity.settings['arch']}"
    if identity.tinygrad_device is not None:
        return f"tinygrad:{identity.tinygrad_device}"
    return f"cuda:{identity.facts.get('index', 0)}" if identity.on_gpu else identity.kind


def _open_best() -> Device:
    try:
        return _open_cuda(0)
    except DeviceUnavailable:
        return _open_cpu()


def _open_cuda(index: int) -> Device:
    from pytest_bandwidth.devices.cuda.device import open_cuda

    return open_cuda(index)


def _open_cpu() -> Device:
    from pytest_bandwidth.devices.cpu.device import open_cpu

    return open_cpu()


def _open_tinygrad(backend: str | None) -> Device:
    from pytest_bandwidth.features.tinygrad.device import open_tinygrad

    return open_tinygrad(backend)


def _open_traffic(arch: str | None) -> Device:
    try:
        from pytest_bandwidth.features.traffic.device import open_traffic
    except ModuleNotFoundError as error:
        missing = f"the traffic device needs {error.name}: pip install 'pytest-bandwidth[traffic]'"
        raise DeviceUnavailable(missing) from None

    return open_traffic(arch)
