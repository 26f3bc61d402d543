"""PTX that Triton 3.9 made of tests/support/triton_kernels.py, kept so that no test here needs Triton.

tests/frameworks/test_triton_traffic.py compiles the same kernels anew, and compares.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from triton_launches import ARCHITECTURES, FOLDER, LAUNCHES, Launch

from pytest_bandwidth.features.traffic import ptx

OF_PTX = {int: np.int32, float: np.float32}


def run(kernel: str, arch: str, launch: Launch) -> ptx.Execution:
    text = (FOLDER / f"{kernel}.{arch}.ptx").read_text(encoding="utf-8")
    # What the compiler needs itself comes last, and is empty here.
    names = (*launch.args, "scratch", "profile")
    module = ptx.PtxModule(text, "", arch, filename="triton_kernels.py", parameters=names, for_blocks=True)
    args = [OF_PTX.get(type(value), lambda same: same)(value) for value in launch.args.values()]
    block, shared = (32 * launch.warps,), launch.shared_bytes
    return ptx.execute(ptx.Program(module), kernel, launch.grid, block, (*args, None, None), shared_bytes=shared)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("kernel", LAUNCHES)
def test_what_triton_made_of_its_tutorials(kernel: str, arch: str) -> None:
    launch = LAUNCHES[kernel]()
    execution = run(kernel, arch, launch)
    assert not execution.faults
    launch.check()
    assert launch.load_sectors in (None, execution.counts.loads.sectors)


def test_lines_are_those_of_python() -> None:
    execution = run("softmax", "sm_80", LAUNCHES["softmax"]())
    assert {line.file for line in execution.lines} == {"triton_kernels.py"}
    # 16 bytes a thread; half of the last warp of each of five rows' eight has nothing to do.
    assert (execution.counts.loads.requests, execution.counts.loads.describe()) == (5 * 8, "coalesced")


def test_a_lost_guard_is_out_of_bounds_at_a_line_of_python() -> None:
    launch = LAUNCHES["softmax"]()
    shorter = replace(launch, args={**launch.args, "out": np.zeros((5, 1000), np.float32)})
    fault, *_ = run("softmax", "sm_80", shorter).faults
    source = (Path(__file__).parents[3] / "support" / "triton_kernels.py").read_text(encoding="utf-8").splitlines()
    assert (fault.code, fault.array, fault.file) == ("out-of-bounds", "out", "triton_kernels.py")
    assert "tl.store(out + row" in source[fault.line - 1]
