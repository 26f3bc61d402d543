"""What is shown of a kernel's PTX that changed."""

import pytest

from pytest_bandwidth.domain.code import ptx_diff as module
from pytest_bandwidth.domain.code.ptx_diff import ONLY_REGISTERS, access_changes, ptx_diff

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
    assert ptx_diff(OLD, renumbered) == ONLY_REGISTERS
    assert ptx_diff(OLD, OLD) == ""
    inserted = renumbered.replace("ret;", "bar.sync 0;\nret;")
    assert [line for line in ptx_diff(OLD, inserted).splitlines() if line[0] in "+-"] == ["+ bar.sync 0;"]


def test_a_diff_of_thousands_of_lines_is_cut_and_takes_no_minutes():
    long = "\n".join(f"add.f32 %f{i}, %f{i}, 0f{i:08x};" for i in range(20_000))
    lines = ptx_diff(long, long.replace("add", "mul")).splitlines()
    assert len(lines) == module.MOST_LINES + 1
    assert lines[-1] == f"… {40_001 - module.MOST_LINES} more lines"


def test_a_line_of_any_length_is_cut():
    table = ".global .b8 t[9999] = {" + "1, " * 9999 + "1};"
    (line,) = [line for line in ptx_diff(OLD, table + "\n" + OLD).splitlines() if line[0] in "+-"]
    assert line == f"+ {table}"[: module.LONGEST_LINE] + "…"


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
        ("add.f32", "mul.f32", None),
    ],
)
def test_accesses_to_global_memory_are_counted_by_width(before, after, said):
    assert before in OLD
    assert access_changes(OLD, OLD.replace(before, after)) == said
