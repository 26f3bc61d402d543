"""Identify what a backend computes on, as far as tinygrad or the system tells."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module, metadata
from typing import Any

from pytest_bandwidth.devices.host import memory_bytes, processor_name, serial
from pytest_bandwidth.domain.device import DeviceIdentity, Fact
from pytest_bandwidth.features.tinygrad.backend import ON_HOST, Backend

LONGEST_NAME = 100
# Which of tinygrad's settings make other kernels of the same tensors, or dispatch them otherwise.
_SETTINGS = ("BEAM", "NOOPT", "JIT")


def identify(backend: Backend) -> DeviceIdentity:
    """Identify a backend: the card's name where one is told, else its architecture; the processor's on the host."""
    opened = backend.opened
    renderer = type(opened.renderer).__name__.removesuffix("Renderer")
    helpers = import_module("tinygrad.helpers")
    settings = {
        "backend": backend.kind,
        "renderer": renderer,
        **{name: str(getattr(getattr(helpers, name, None), "value", "unknown")) for name in _SETTINGS},
    }
    facts: dict[str, Fact] = {
        "index": backend.index,
        "tinygrad": metadata.version("tinygrad"),
        "arch": _architecture(opened),
        "processors": os.cpu_count(),
    }
    # An Apple GPU has the host's memory.
    memory = memory_bytes() if backend.kind in (*ON_HOST, "METAL") else None
    name = f"{_card(backend)} (tinygrad {backend.kind})"
    return DeviceIdentity("tinygrad", name, memory, f"{serial()}-{backend.name}", settings, facts, variant=backend.name)


def _card(backend: Backend) -> str:
    """Return what a backend computes on; its architecture where it has no name that tinygrad knows."""
    if backend.kind in ON_HOST:
        return processor_name()
    found = None
    # METAL holds the system's own device, CL the name that the driver told; neither is documented.
    with suppress(Exception):
        told = getattr(backend.opened, "device_name", None)
        found = _metal_name(backend.opened) if backend.kind == "METAL" else told
    if isinstance(found, str) and found.strip():
        return " ".join(found.split())[:LONGEST_NAME]
    return _architecture(backend.opened) or backend.kind


def _metal_name(opened: Any) -> str:
    return str(import_module("tinygrad.runtime.ops_metal").from_ns_str(opened.sysdevice.name()))


def _architecture(opened: Any) -> str | None:
    found = getattr(opened, "arch", None)
    return found[:LONGEST_NAME] if isinstance(found, str) and found else None
