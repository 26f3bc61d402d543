"""Measure the built-in operations: ``pytest --pyargs pytest_bandwidth.suite``.

Every operation that matters in ML and HPC, as data (`operations`), with its reference (`references`) and its traffic
model (`pytest_bandwidth.domain.traffic`). ``--bandwidth-suite=full`` runs every version, dtype and shape.
"""

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
