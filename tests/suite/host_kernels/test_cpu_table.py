"""The register of host kernels against the CUDA sources that they are twins of."""

import re

import pytest

from pytest_bandwidth.devices.kernel_source import kernel_names, shipped_folder
from pytest_bandwidth.suite.host_kernels import HOST_KERNELS

# What the measuring of a GPU needs for itself.
NOT_FOR_TESTS = {"probe.cu"}
# Numba's kernels have no bfloat16.
NO_TWIN = "_bf16"
FILES = sorted(path.name for path in shipped_folder().glob("*.cu") if path.name not in NOT_FOR_TESTS)


def declarations(text):
    """Name → [(type, parameter), …] of the kernels in CUDA text, without const and __restrict__."""
    found = {}
    bounds = r"(?:__launch_bounds__\([^)]*\)\s*)?"
    for name, inside in re.findall(rf'^extern "C" __global__ void {bounds}(\w+)\(([^)]*)\)\s*\{{', text, re.MULTILINE):
        words = (" ".join(re.sub(r"const |__restrict__ ?", "", p).split()) for p in inside.split(","))
        found[name] = [tuple(word.rsplit(" ", 1)) for word in words]
    return found


@pytest.mark.parametrize("file", FILES)
def test_every_shipped_kernel_has_a_twin_that_takes_the_same_arguments(file):
    declared = declarations((shipped_folder() / file).read_text(encoding="utf-8"))
    assert declared, "the pattern finds no kernel in this file"
    for name, parameters in declared.items():
        assert (name in HOST_KERNELS) == (NO_TWIN not in name)
        if NO_TWIN in name:
            continue
        assert [(p.cuda, p.name) for p in HOST_KERNELS[name].parameters] == parameters


def test_there_is_no_twin_without_a_cuda_kernel():
    text = "".join((shipped_folder() / file).read_text(encoding="utf-8") for file in FILES)
    assert set(HOST_KERNELS) == {name for name in declarations(text) if NO_TWIN not in name}
    assert set(HOST_KERNELS) <= set(kernel_names(text))
