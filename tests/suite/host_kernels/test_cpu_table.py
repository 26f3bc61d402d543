"""The register of host kernels against the CUDA sources that they are twins of."""

import re

from pytest_bandwidth.devices.kernel_source import shipped_folder
from pytest_bandwidth.suite.host_kernels import HOST_KERNELS

# What the measuring of a GPU needs for itself.
NOT_FOR_TESTS = {"probe.cu"}
# Numba's kernels have no bfloat16.
NO_TWIN = "_bf16"


def declarations(text):
    """Name → [(type, parameter), …] of the kernels in CUDA text, without const and __restrict__."""
    found = {}
    bounds = r"(?:__launch_bounds__\([^)]*\)\s*)?"
    for name, inside in re.findall(rf'^extern "C" __global__ void {bounds}(\w+)\(([^)]*)\)\s*\{{', text, re.MULTILINE):
        words = (" ".join(re.sub(r"const |__restrict__ ?", "", p).split()) for p in inside.split(","))
        found[name] = [tuple(word.rsplit(" ", 1)) for word in words]
    return found


def test_each_shipped_kernel_has_a_twin_that_takes_the_same_arguments_and_no_twin_is_left():
    files = [path for path in shipped_folder().glob("*.cu") if path.name not in NOT_FOR_TESTS]
    declared = declarations("".join(path.read_text(encoding="utf-8") for path in files))
    wanted = {name: parameters for name, parameters in declared.items() if NO_TWIN not in name}
    assert {name: [(p.cuda, p.name) for p in twin.parameters] for name, twin in HOST_KERNELS.items()} == wanted
