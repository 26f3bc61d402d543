"""Random programs of nested, divergent control flow, thread by thread against an interpreter of their syntax tree."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_sources import run
from random_kernels import THREADS, VARIABLES, interpret, random_kernel


@pytest.mark.parametrize("seed", range(24))
def test_random_control_flow(seed: int) -> None:
    kernel = random_kernel(seed)
    data, out = kernel.data, np.zeros_like(kernel.data)
    execution = run(kernel.text, "k", (1,), (THREADS,), out, data, arch=kernel.arch)
    for thread in range(THREADS):
        v = {name: int(data[i, thread]) for i, name in enumerate(VARIABLES)} | {"t": thread}
        interpret(kernel.body, v)
        assert [v[n] for n in VARIABLES] == out[:, thread].tolist(), f"thread {thread}, {VARIABLES}\n{kernel.text}"
    assert execution.counts.stores.requests == len(VARIABLES) * 2  # all threads have met again at the end
