"""Run the candidates of tests/features/honest/candidates, and list those that do not end as their table says."""

import json
import os
import re
from pathlib import Path

CANDIDATES = Path(__file__).parents[1] / "features" / "honest" / "candidates"
# Each measurement is short: how fast a candidate is decides nothing.
SHORT = ("--bandwidth-max-time=0.015", "--bandwidth-min-samples=5", "-q", "-rf", "--bandwidth-json=out.json")
INI = "[pytest]\naddopts = -p no:randomly -p no:benchmark\nbandwidth_busy_processors = 1000\nfilterwarnings = error\n"


def lay_out(folder: Path, *modules: str) -> str:
    """Write a project whose tests are those of some modules of candidates; return its PYTHONPATH."""
    (folder / "pytest.ini").write_text(INI)
    imports = "".join(f"import {module}\n" for module in modules)
    (folder / "test_it.py").write_text(f"{imports}from table import test_of_each\ntest_candidate = test_of_each()\n")
    return os.pathsep.join(filter(None, (str(CANDIDATES), os.environ.get("PYTHONPATH", ""))))


def unexpected(folder: Path, printed: str) -> dict[str, str]:
    """Return what became of each candidate that ended otherwise than it is to, by its key."""
    rows = json.loads((folder / "out.json").read_text())["results"]
    ended = dict.fromkeys(re.findall(r"^FAILED test_it\.py::test_candidate\[(\S+)\]", printed, re.MULTILINE), "refused")
    for row in rows:
        found = row["reason_code"].removeprefix("work:") if row["status"] == "MISMATCH" else row["status"]
        ended[row["nodeid"].partition("[")[2][:-1]] = found
    table = json.loads((folder / "table.json").read_text())
    passes = {"OK", "UNDECIDED"}
    wrong = {}
    for key, (codes, is_right) in table.items():
        found = ended.get(key, "not run")
        if found not in codes and not (is_right and found in passes):
            wrong[key] = f"{found}, expected {' or '.join(sorted(codes)) or 'no accusation'}"
    return wrong


# Two kernels for `pytest-bandwidth arena`, whose reference is in Python. The second kernel skips a tail.
ARENA_KERNELS = """
extern "C" __global__ void twice(float* y, const float* x, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}
extern "C" __global__ void skips_tail(float* y, const float* x, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n - 3) y[i] = 2 * x[i];
}
"""
ARENA_SHAPES = """
- name: whole
  args: {{y: {{shape: {n}, role: out}}, x: {{shape: {n}, distribution: signed}}, n: {{value: {n}, dtype: int64}}}}
  grid: {blocks}
  block: 256
"""


def lay_out_arena(folder: Path, n: int) -> list[str]:
    """Write the kernels and their reference; return the arguments of the command that compares them."""
    (folder / "ref.py").write_text("def run(y, x, n):\n    y[...] = 2 * x\n")
    (folder / "k.cu").write_text(ARENA_KERNELS)
    (folder / "shapes.yaml").write_text(ARENA_SHAPES.format(n=n, blocks=n // 256))
    kernels = [f"{folder / 'k.cu'}::{name}" for name in ("twice", "skips_tail")]
    return [str(folder / "ref.py"), *kernels, f"--inputs={folder / 'shapes.yaml'}", "--json=-"]
