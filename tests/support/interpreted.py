"""Run operations of the suite by interpreting the PTX of their kernels: the kernels themselves, without a GPU."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import kernel_resources
import numpy as np
import pytest

from pytest_bandwidth.devices.numpy_arrays import RandomSource, resolve_dtype
from pytest_bandwidth.features.traffic.ptx.counts import Execution
from pytest_bandwidth.features.traffic.ptx.decode import Program
from pytest_bandwidth.features.traffic.ptx.faults import fill_untouched
from pytest_bandwidth.features.traffic.ptx.launch import execute
from pytest_bandwidth.suite.operations.model import Case, KernelStep

CUDA_SRC = Path(__file__).parents[2] / "cuda_src"


class FreshArrays:
    """Give random input, different in every run, and output whose content counts as never written.

    `seed` is shown where a test fails, to run it again with the same data.
    """

    xp = np

    def __init__(self, seed: int | None = None) -> None:
        self.seed = int(np.random.SeedSequence().entropy) % 2**32 if seed is None else seed
        self._source = RandomSource(self.seed)
        self.untouched: list[Any] = []

    def random(self, shape: int | Sequence[int], dtype: Any) -> Any:
        if dtype == "bfloat16":
            pytest.importorskip("ml_dtypes")
        # A copy, exactly as large: whatever lies beyond it is out of bounds.
        return np.array(self._source.array(shape, dtype))

    def empty(self, shape: int | Sequence[int], dtype: Any) -> Any:
        array = np.empty(shape, resolve_dtype(dtype))
        fill_untouched(array)
        self.untouched.append(array)
        return array


@functools.cache
def shipped(file: str, arch: str) -> Program:
    return Program(kernel_resources.ptx(file, arch))


def run(case: Case, arrays: FreshArrays, arch: str, *, one_block: bool = False) -> list[Execution]:
    """Execute the case's launches in order. one_block: with a grid of a single block, whatever the case asks for."""
    executions = []
    for step in case.steps:
        assert isinstance(step, KernelStep)
        executions.append(
            execute(
                shipped(step.file, arch),
                step.kernel,
                (1, 1, 1) if one_block else step.grid,
                step.block,
                step.args,
                uninitialised=arrays.untouched,
            )
        )
    return executions


def faults(executions: Sequence[Execution]) -> list[str]:
    return [f"{run.kernel}: {fault.text}" for run in executions for fault in run.faults]
