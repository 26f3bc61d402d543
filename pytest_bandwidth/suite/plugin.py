"""Plug the suite in: the twins of its kernels on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_bandwidth.hooks import hookimpl

if TYPE_CHECKING:
    from pytest_bandwidth.hooks import HostKernel


@hookimpl
def pytest_bandwidth_host_kernels() -> list[HostKernel]:
    """Add twins of the kernels of cuda_src/."""
    from pytest_bandwidth.suite.host_kernels import HOST_KERNELS

    return list(HOST_KERNELS.values())
