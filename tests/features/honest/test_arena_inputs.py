"""The cases of an arena's `--inputs`: what is read, and that hostile input is refused in a line."""

import json
from dataclasses import asdict

import numpy as np
import pytest

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.features.honest.arena_inputs import MOST_FILE_BYTES, Case, Parameter, case_of, read_cases

X = "x: {shape: 8}"


@pytest.fixture
def cases_in(tmp_path):
    def read(text):
        file = tmp_path / "shapes.yaml"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_cases(file)

    return read


def test_a_case_has_its_parameters_in_order(cases_in):
    text = """
# Two sizes.
- name: small, n=8
  args:
    y: {shape: [2, 4], role: out}
    x: {shape: 8, dtype: float16, distribution: special}
    m: {shape: 8, dtype: uint8, role: inout, distribution: sparse}
    n: {value: -8, dtype: int64}
    a: {value: 2.5e-3, dtype: float32}
    b: {value: true, dtype: bool}
  grid: [4, 2]
  block: 256
  shared_mem: 1024
- name: large
  args:
    x: {shape: 1024}
"""
    small, large = cases_in(text)
    assert small == Case(
        "small, n=8",
        (
            Parameter("y", "out", "float32", (2, 4)),
            Parameter("x", "in", "float16", (8,), "special"),
            Parameter("m", "inout", "uint8", (8,), "sparse"),
            Parameter("n", "scalar", "int64", value=-8),
            Parameter("a", "scalar", "float32", value=2.5e-3),
            Parameter("b", "scalar", "bool", value=True),
        ),
        (4, 2),
        (256,),
        1024,
    )
    assert large == Case("large", (Parameter("x", "in", "float32", (1024,)),))
    assert case_of(json.loads(json.dumps(asdict(small)))) == small
    assert isinstance(small.parameters[4].scalar(), np.float32)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "1: found no list of 1 to 256 cases"),
        ("name: x\n", "1: found no list of 1 to 256 cases"),
        ("- [1\n", "found text that is not YAML"),
        ("- 5\n", "1: a case: found no mapping, expected name, args"),
        (f"- {{args: {{{X}}}}}\n", "1: a case: found no name, expected one"),
        ("- {name: a}\n", "1: a case: found no args, expected one"),
        (f"- {{name: a, args: {{{X}}}, repeat: 3}}\n", "1: a case: found 'repeat', expected one of name, args, grid"),
        (f'- {{name: "a\\e[2J", args: {{{X}}}}}\n', "1: found the character U+001B"),
        (f"- {{name: a/b, args: {{{X}}}}}\n", "1: found 'a/b', expected a name of letters"),
        (f"- {{name: a, args: {{{X}}}}}\n- {{name: a, args: {{{X}}}}}\n", "2: found the name 'a' again"),
        ("- {name: a, args: []}\n", "1: args: found no such mapping"),
        ("- {name: a, args: {x: {shape: 8, shape: 9}}}\n", "1: found 'shape' twice"),
        ("- {name: a, args: {x: &x {shape: 8}}}\n", "1: found the anchor &x"),
        ("- {name: a, args: {x: !!python/object:os.system {shape: 8}}}\n", "1: found the tag"),
        ("- {name: a, args: {x: {shape: -1}}}\n", "1: x.shape: found '-1', expected a whole number from 0"),
        ("- {name: a, args: {x: {shape: 1e9}}}\n", "1: x.shape: found '1e9', expected a whole number"),
        ("- {name: a, args: {x: {shape: [1, 1, 1, 1, 1, 1, 1, 1, 1]}}}\n", "1: x.shape: found 9 numbers"),
        ("- {name: a, args: {x: {shape: 8, dtype: float33}}}\n", "1: 'float33' is not a dtype"),
        ("- {name: a, args: {x: {shape: 8, distribution: normal}}}\n", "1: x.distribution: found 'normal'"),
        ("- {name: a, args: {x: {shape: 8, role: both}}}\n", "1: x.role: found 'both', expected one of in, out, inout"),
        (f"- {{name: a, args: {{{X}, n: {{value: 1}}}}}}\n", "1: n: found no dtype"),
        (f"- {{name: a, args: {{{X}, n: {{value: 256, dtype: uint8}}}}}}\n", "expected a whole number from 0 to 255"),
        (f"- {{name: a, args: {{{X}, n: {{value: .nan, dtype: float32}}}}}}\n", "1: value: found '.nan'"),
        (f"- {{name: a, args: {{{X}, n: {{value: inf, dtype: float32}}}}}}\n", "1: value: found 'inf'"),
        (f"- {{name: a, args: {{{X}}}, grid: 4, block: 0}}\n", "1: block: found '0', expected a whole number from 1"),
        (f"- {{name: a, args: {{{X}}}, grid: 1, block: 1, shared_mem: 1GiB}}\n", "1: shared_mem: found '1GiB'"),
        ("- " * 50, "nested deeper than 6, expected fewer levels"),
        (b"- \xff\n", "1: found the byte 0xff"),
        (b"\0", "1: found the byte 0x00"),
        ("#" * MOST_FILE_BYTES + "\n", f"expected at most {MOST_FILE_BYTES}"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(cases_in, text, said):
    with pytest.raises(UsageError) as refused:
        cases_in(text)
    assert said in str(refused.value)
    assert str(refused.value).isprintable()


def test_what_is_no_file_is_refused(tmp_path):
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(UsageError, match="expected a list of cases"):
            read_cases(path)
