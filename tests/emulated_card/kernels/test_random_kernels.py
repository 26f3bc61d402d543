"""Random divergent control flow by the interpreter and as built code: same bytes, same order of blocks, same counts."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

if not all(map(importlib.util.find_spec, ("cuda", "numba", "lark"))):
    pytest.skip("translating kernels needs: pip install 'pytest-bandwidth[traffic]'", allow_module_level=True)

from random_kernels import THREADS, random_kernel

from emulated_card.kernels.comparing import needs_compiler, run_both
from pytest_bandwidth.features.traffic import ptx

pytestmark = needs_compiler


# Some of the 24 programs are so long that gcc takes a minute over them.
@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 5])
def test_random_control_flow(seed: int) -> None:
    kernel = random_kernel(seed)
    module = ptx.compile_ptx(kernel.text, arch=kernel.arch)
    run_both(module, "k", (1,), (THREADS,), (np.zeros_like(kernel.data), kernel.data))
