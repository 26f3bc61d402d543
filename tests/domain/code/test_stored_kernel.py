"""What is stored of a kernel says how it may be launched, and how it changed."""

from __future__ import annotations

import pytest

from pytest_bandwidth.domain.code import stored_kernel
from pytest_bandwidth.domain.code.ptx_normal_form import ptx_digest
from pytest_bandwidth.domain.code.stored_kernel import (
    ONLY_REGISTERS,
    LaunchShape,
    PtxEntry,
    access_changes,
    entry_of,
    in_version,
    newest_version,
    ptx_diff,
    shape_changes,
    shape_of,
    target_of,
    version_of,
    why_not_interchangeable,
)

MODULE = ".version 9.5\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\nret;\n}\n"
HEAD = ".version 9.5\n.target sm_90\n.address_size 64\n"
BODY = "{\n.shared .align 4 .b8 z[128];\nld.param.u64 %rd1, [k_param_0];\nret;\n}\n"


def test_another_version_is_the_same_module():
    lowered = in_version(MODULE, (9, 0))
    assert (version_of(MODULE), version_of(lowered)) == ((9, 5), (9, 0))
    assert lowered == MODULE.replace("9.5", "9.0")
    assert ptx_digest(lowered) == ptx_digest(MODULE)
    assert [target_of(text) for text in (MODULE, MODULE.replace("sm_90", "sm_90a, debug"), "")] == [
        "sm_90",
        "sm_90a",
        None,
    ]


@pytest.mark.parametrize("line", ["// .version 9.5", " .version 9.5", ".version 9.5 .entry k()", "\n.version 9.5"])
def test_a_version_stands_alone_in_the_first_line(line):
    text = MODULE.replace(".version 9.5", line)
    assert version_of(text) is None
    assert in_version(text, (9, 0)) == text


@pytest.mark.parametrize(
    ("cuda", "ptx"), [((11, 8), (7, 8)), ((12, 5), (8, 5)), ((12, 6), (8, 5)), ((12, 8), (8, 7)), ((13, 0), (9, 0))]
)
def test_the_newest_version_follows_the_drivers_cuda(cuda, ptx):
    assert newest_version(cuda) == ptx


def kernel(*parameters, variables="", name="k"):
    listed = ",\n".join(f"{p.format(f'{name}_param_{i}')}" for i, p in enumerate(parameters))
    return f"{HEAD}{variables}.visible .entry {name}(\n{listed}\n)\n.maxntid 256, 1, 1\n{BODY}"


POINTERS = kernel(".param .u64 {}", ".param .u64 .ptr .align 1 {}", ".param .u32 {}")
PRINTF = ".extern .func (.param .b32 func_retval0) vprintf\n(\n.param .b64 vprintf_param_0\n)\n;\n"
EXTERN = ".extern .shared .align 16 .b8 dyn[];\n"
CALLED = ".func (.param .b32 func_retval0) half(\n.param .b32 half_param_0\n)\n{\nret;\n}\n"
TABLE = ".const .align 4 .b8 d[8] = {0, 0, 128, 63, 0, 0, 0, 64};\n.global .align 1 .b8 $data_0[2] = {120};\n"


BY_VALUE = kernel(".param .align 4 .b8 {}[12]", ".param .f32 {}", ".param .f16x2 {}", ".param .b8 {}")


@pytest.mark.parametrize(
    ("ptx", "parameter_bytes"),
    [
        *((POINTERS, (8, 8, 4)), (BY_VALUE, (12, 4, 4, 1))),
        *((f"{HEAD}.visible .entry k{parameters}\n{BODY}", ()) for parameters in ("()", "")),
        *((kernel(".param .u64 {}", variables=around), (8,)) for around in (PRINTF, EXTERN, CALLED, TABLE)),
    ],
)
def test_an_entrys_name_and_parameters_are_read_whatever_stands_around(ptx, parameter_bytes):
    assert entry_of(ptx) == PtxEntry("k", parameter_bytes, ())


@pytest.mark.parametrize("text", ["", HEAD, "no PTX", POINTERS + kernel(name="other")])
def test_a_module_of_no_kernel_or_several_is_none(text):
    assert entry_of(text) is None
    assert why_not_interchangeable(text, POINTERS) == "its PTX holds no kernel, or several"
    assert why_not_interchangeable(POINTERS, text) == "the new PTX holds no kernel, or several"


@pytest.mark.parametrize("variable", [".const .align 4 .b8 counter[16];", ".visible .global .f32 counter;"])
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


OLD = """.target sm_90
.visible .entry k()
{
.reg .f32 %f<5>;
ld.global.nc.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];
add.f32 %f5, %f1, %f2;
add.f32 %f6, %f5, %f3;
st.global.f32 [%rd2], %f6;
ret;
}
"""


def test_only_what_changed_is_shown_with_some_lines_around():
    new = OLD.replace("add.f32 %f6, %f5, %f3;", "mul.f32 %f6, %f5, 0f40400000;")
    assert ptx_diff(OLD, new).splitlines() == [
        "@@ line 4 → 4 @@",
        "  .reg .f32 %f<5>;",
        "  ld.global.nc.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];",
        "  add.f32 %f5, %f1, %f2;",
        "- add.f32 %f6, %f5, %f3;",
        "+ mul.f32 %f6, %f5, 0f40400000;",
        "  st.global.f32 [%rd2], %f6;",
        "  ret;",
        "  }",
    ]


def test_registers_of_other_numbers_make_no_difference():
    renumbered = OLD.replace("%f6", "%f16").replace("%rd2", "%rd7")
    assert (ptx_diff(OLD, renumbered), ptx_diff(OLD, OLD)) == (ONLY_REGISTERS, "")
    inserted = renumbered.replace("ret;", "bar.sync 0;\nret;")
    assert [line for line in ptx_diff(OLD, inserted).splitlines() if line[0] in "+-"] == ["+ bar.sync 0;"]


def test_a_diff_of_thousands_of_lines_or_of_a_long_one_is_cut_and_takes_no_minutes():
    long = "\n".join(f"add.f32 %f{i}, %f{i}, 0f{i:08x};" for i in range(20_000))
    lines = ptx_diff(long, long.replace("add", "mul")).splitlines()
    assert len(lines) == stored_kernel.MOST_LINES + 1
    assert lines[-1] == f"… {40_001 - stored_kernel.MOST_LINES} more lines"
    table = ".global .b8 t[9999] = {" + "1, " * 9999 + "1};"
    (line,) = [line for line in ptx_diff(OLD, table + "\n" + OLD).splitlines() if line[0] in "+-"]
    assert line == f"+ {table}"[: stored_kernel.LONGEST_LINE] + "…"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("v4.f32", "v2.f32", "in its code, loads of 64 bits 0 → 1, loads of 128 bits 1 → 0"),
        (
            "st.global.f32",
            "st.volatile.global.v2.f64",
            "in its code, stores of 32 bits 1 → 0, stores of 128 bits 0 → 1",
        ),
        ("ld.global.nc.v4.f32", "ld.global.L1::no_allocate.nc.v4.f32", None),
        ("ld.global.nc.v4.f32", "ld.shared.v4.f32", "in its code, loads of 128 bits 1 → 0"),
    ],
)
def test_accesses_to_global_memory_are_counted_by_width(before, after, said):
    assert before in OLD
    assert access_changes(OLD, OLD.replace(before, after)) == said


FLAT = LaunchShape((4096, 1, 1), (256, 1, 1))
DEEP = LaunchShape((8, 4, 2), (32, 1, 4), 49152)


def test_a_shape_is_read_back_as_it_was_recorded():
    recorded = {"grid_x": 8, "grid_y": 4, "grid_z": 2, "block_x": 32, "block_z": 4, "dynamic_shared_bytes": 49152}
    assert FLAT.recorded() == {"grid_x": 4096, "block_x": 256}
    assert DEEP.recorded() == recorded
    assert [shape_of({"registers": 32, **shape.recorded()}) for shape in (FLAT, DEEP)] == [FLAT, DEEP]
    assert [shape_of(part) for part in ({"registers": 32}, {"grid_x": 8}, {"block_x": 8})] == [None] * 3


@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        (FLAT, FLAT._replace(block=(128, 1, 1)), ["block 256 → 128"]),
        (FLAT, DEEP._replace(shared_bytes=0), ["grid 4,096 → 8 × 4 × 2", "block 256 → 32 × 1 × 4"]),
        (FLAT, FLAT._replace(shared_bytes=1024), ["dynamic shared memory 0 → 1,024 B a block"]),
    ],
)
def test_only_what_changed_is_said(then, now, said):
    assert shape_changes(then, now) == said
