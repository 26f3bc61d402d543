"""What a stored kernel's PTX says of how it may be launched."""

from __future__ import annotations

import pytest

from pytest_bandwidth.domain.code.ptx import (
    PtxEntry,
    entry_of,
    in_version,
    newest_version,
    target_of,
    version_of,
    why_not_interchangeable,
)
from pytest_bandwidth.domain.code.ptx_normal_form import ptx_digest

MODULE = ".version 9.5\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\nret;\n}\n"
HEAD = ".version 9.5\n.target sm_90\n.address_size 64\n"
BODY = "{\n.shared .align 4 .b8 z[128];\nld.param.u64 %rd1, [k_param_0];\nret;\n}\n"


def test_another_version_is_the_same_module():
    lowered = in_version(MODULE, (9, 0))
    assert (version_of(MODULE), version_of(lowered)) == ((9, 5), (9, 0))
    assert lowered == MODULE.replace("9.5", "9.0")
    assert ptx_digest(lowered) == ptx_digest(MODULE)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "// .version 9.5",
        " .version 9.5",
        ".version 9",
        ".version 9.5 .entry k()",
        ".version 9999.5",
        "\n.version 9.5",
    ],
)
def test_a_version_stands_alone_in_the_first_line(line):
    text = MODULE.replace(".version 9.5", line)
    assert version_of(text) is None
    assert in_version(text, (9, 0)) == text


@pytest.mark.parametrize(
    ("cuda", "ptx"),
    [
        ((11, 8), (7, 8)),
        ((12, 0), (8, 0)),
        ((12, 5), (8, 5)),
        ((12, 6), (8, 5)),
        ((12, 8), (8, 7)),
        ((12, 9), (8, 8)),
        ((13, 0), (9, 0)),
        ((13, 5), (9, 5)),
    ],
)
def test_the_newest_version_follows_the_drivers_cuda(cuda, ptx):
    assert newest_version(cuda) == ptx


@pytest.mark.parametrize(
    ("line", "target"), [(".target sm_90", "sm_90"), (".target sm_90a, debug", "sm_90a"), ("", None)]
)
def test_the_architecture_stands_in_its_line(line, target):
    assert target_of(MODULE.replace(".target sm_90", line)) == target


def kernel(*parameters, variables="", name="k"):
    listed = ",\n".join(f"{p.format(f'{name}_param_{i}')}" for i, p in enumerate(parameters))
    return f"{HEAD}{variables}.visible .entry {name}(\n{listed}\n)\n.maxntid 256, 1, 1\n{BODY}"


POINTERS = kernel(".param .u64 {}", ".param .u64 .ptr .align 1 {}", ".param .u32 {}")
PRINTF = ".extern .func (.param .b32 func_retval0) vprintf\n(\n.param .b64 vprintf_param_0\n)\n;\n"
EXTERN = ".extern .shared .align 16 .b8 dyn[];\n"
CALLED = ".func (.param .b32 func_retval0) half(\n.param .b32 half_param_0\n)\n{\nret;\n}\n"
TABLE = ".const .align 4 .b8 d[8] = {0, 0, 128, 63, 0, 0, 0, 64};\n.global .align 1 .b8 $data_0[2] = {120};\n"


def test_an_entrys_name_and_parameters_are_read():
    assert entry_of(POINTERS) == PtxEntry("k", (8, 8, 4), ())
    by_value = kernel(".param .align 4 .b8 {}[12]", ".param .f32 {}", ".param .f16x2 {}", ".param .b8 {}")
    assert entry_of(by_value) == PtxEntry("k", (12, 4, 4, 1), ())
    assert entry_of(f"{HEAD}.visible .entry k()\n{BODY}") == PtxEntry("k", (), ())
    assert entry_of(f"{HEAD}.visible .entry k\n{BODY}") == PtxEntry("k", (), ())


@pytest.mark.parametrize("text", ["", HEAD, "no PTX", POINTERS + kernel(name="other")])
def test_a_module_of_no_kernel_or_several_is_none(text):
    assert entry_of(text) is None
    assert why_not_interchangeable(text, POINTERS) == "its PTX holds no kernel, or several"
    assert why_not_interchangeable(POINTERS, text) == "the new PTX holds no kernel, or several"


def test_what_stands_around_a_kernel_does_not_matter():
    for around in (PRINTF, EXTERN, CALLED, TABLE):
        assert entry_of(kernel(".param .u64 {}", variables=around)) == PtxEntry("k", (8,), ())


@pytest.mark.parametrize(
    "variable", [".global .align 4 .u32 counter;", ".const .align 4 .b8 counter[16];", ".visible .global .f32 counter;"]
)
def test_variables_that_nothing_initialises_may_be_others(variable):
    old = kernel(".param .u64 {}", variables=f"{TABLE}{variable}\n{PRINTF}")
    said = why_not_interchangeable(old, old)
    assert said == "it uses counter, which the host or other kernels may set"


def test_only_the_parameters_sizes_have_to_agree():
    renamed = kernel(".param .b64 {}", ".param .b64 {}", ".param .f32 {}", name="other")
    assert why_not_interchangeable(renamed, POINTERS) is None
    wider = kernel(".param .u64 {}", ".param .u64 {}", ".param .u64 {}")
    said = why_not_interchangeable(wider, POINTERS)
    assert said == "it takes parameters of 8, 8, 8 bytes, the new one parameters of 8, 8, 4 bytes"
    assert "parameters of no bytes" in (why_not_interchangeable(kernel(), POINTERS) or "")
