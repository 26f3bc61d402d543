"""What users, CI files and other tools depend on, held to a copy: change contract.json only where they are told.

Nothing here knows how the package is laid out inside: everything is asked of pytest, of the command line and of files.
`python tests/product/test_contract.py` writes the copy anew.
"""

import csv
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml

sys.path.append(str(Path(__file__).parents[1] / "support"))  # as pytest does: a script has its own folder alone
from children import HANGS_SECONDS

CONTRACT = Path(__file__).with_name("contract.json")
QUICK = ("-p", "no:cacheprovider", "--bandwidth-max-time=0.05", "--bandwidth-min-samples=5")
INI = "[pytest]\naddopts = -p no:randomly -p no:hypothesispytest -p no:benchmark\nbandwidth_busy_processors = 1000\n"
INI += "bandwidth_runs = 1\n"

TESTS = """
import inspect
import json

import numpy as np
import pytest


def signatures(owner):
    said = {}
    for name in dir(owner):
        value = inspect.getattr_static(owner, name)
        if name.startswith("_") and name not in ("__call__", "__getitem__"):
            continue
        if inspect.isfunction(value):
            parameters = inspect.signature(value).parameters.values()
            said[name] = [str(p.replace(annotation=p.empty)) for p in parameters]
        else:
            said[name] = "attribute"
    return said


def test_copy(bandwidth):
    a = bandwidth.random(1 << 16, "float32")
    b = bandwidth.empty(1 << 16, "float32")
    result = bandwidth(np.copyto, b, a, reads=a, writes=b)
    compared = bandwidth.compare({"one": lambda: b.fill(1), "two": lambda: b.fill(2)}, writes=b)
    ratio = compared.ratio("one", over="two")
    shapes = {"bandwidth": bandwidth, "measurement": result, "comparison": compared, "ratio": ratio}
    with open("signatures.json", "w") as file:
        json.dump({name: signatures(type(value)) for name, value in shapes.items()}, file)


@pytest.mark.bandwidth(min_gbps=1e-6)
def test_floor(bandwidth):
    a = bandwidth.random(1 << 16, "float32")
    bandwidth(np.sum, a, reads=a, writes=8, flop=a.size, label="sum")
"""

COUNTED = """
import numpy as np

KERNEL = '''
extern "C" __global__ void twice(const float* a, float* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i] = 2 * a[i];
}
'''


def test_twice(bandwidth):
    n = 1024
    a, b = bandwidth.random(n), bandwidth.empty(n)
    bandwidth.launch(bandwidth.kernel(KERNEL), 8, 128, (a, b, np.int32(n)), reads=a, writes=b)
"""


def run(folder, *command):
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={**os.environ, "NUMBA_NUM_THREADS": "1"},  # a probe on more threads loses its samples on a busy machine
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_SECONDS,
    )


def shape(value):
    """Keys and types, without what was measured: of a list, the shapes of all that it holds, joined."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in sorted(value.items())}
    if isinstance(value, list):
        return [joined([shape(inner) for inner in value])] if value else []
    return {bool: "truth", int: "number", float: "number", str: "text", type(None): "none"}[type(value)]


def joined(shapes):
    if all(isinstance(one, dict) for one in shapes):
        keys = sorted({key for one in shapes for key in one})
        return {key: joined([one[key] for one in shapes if key in one]) for key in keys}
    distinct = sorted({json.dumps(one, sort_keys=True) for one in shapes})
    return json.loads(distinct[0]) if len(distinct) == 1 else sorted(map(json.loads, distinct), key=json.dumps)


def both_known(one, other):
    """Both without the types of what one of them lacks: a busy machine leaves figures out (null), not their keys."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        pairs = {key: both_known(one[key], other[key]) for key in one}
        return {key: pair[0] for key, pair in pairs.items()}, {key: pair[1] for key, pair in pairs.items()}
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other) == 1:
        first, second = both_known(one[0], other[0])
        return [first], [second]
    lacking = "none" in (one, other) or any(isinstance(side, list) and "none" in side for side in (one, other))
    return ("unknown", "unknown") if lacking else (one, other)


# What depends on the machine, by its place in a document.
OF_THE_MACHINE = ("environment", "software", "facts", "settings", "conditions", "findings", "dropped", "run_delay")
# What a run records of a host that tells it.
OF_SOME_MACHINES = ("governor", "transparent_hugepages")


def without_machine(value):
    if isinstance(value, dict):
        return {key: "of the machine" if key in OF_THE_MACHINE else without_machine(v) for key, v in value.items()}
    if isinstance(value, list):
        return [without_machine(inner) for inner in value]
    return value


def baseline_of(path):
    """The form of a baseline's two files: keys in their order, of the newest run and of what it holds of a test."""
    tree = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    run = json.loads(path.with_suffix(".runs.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    of_test = [key for key in next(iter(run["tests"].values())) if key not in OF_SOME_MACHINES]
    entry = next(iter(tree["tests"].values()))
    return {"file": list(tree), "device": list(tree["device"]), "entry": list(entry), "run": list(run), "test": of_test}


def options(text):
    return sorted(set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", text)))


def contract(folder):
    (folder / "pytest.ini").write_text(INI, encoding="utf-8")
    (folder / "test_host.py").write_text(TESTS, encoding="utf-8")
    (folder / "test_counted.py").write_text(COUNTED, encoding="utf-8")
    found = {}

    said = run(folder, "pytest", "--help").stdout
    found["options"] = sorted(set(re.findall(r"--bandwidth-[a-z-]+(?:=\S+)?", said)))
    found["ini"] = sorted(set(re.findall(r"^\s+(bandwidth_\w+) \(\w+\)", said, re.MULTILINE)))
    marker = re.search(r"@pytest.mark.bandwidth\(([^)]*)\)", run(folder, "pytest", "--markers").stdout)
    found["marker"] = sorted(re.findall(r"(\w+)=", marker[1])) if marker else None

    host = ("--bandwidth-device=cpu", "test_host.py", *QUICK)
    files = ("--bandwidth-json=host.json", "--bandwidth-csv=host.csv", "--bandwidth-html=host.html")
    first = run(folder, "pytest", *host, "--bandwidth-baseline=host.yaml", "--bandwidth-update", *files)
    assert first.returncode == 0, first.stdout + first.stderr
    found["signatures"] = json.loads((folder / "signatures.json").read_text(encoding="utf-8"))
    document = json.loads((folder / "host.json").read_text(encoding="utf-8"))
    found["document"] = without_machine(shape(document))
    found["schema"] = document["schema"]
    found["csv"] = next(csv.reader((folder / "host.csv").read_text(encoding="utf-8").splitlines()))
    found["baseline"] = baseline_of(folder / "host.yaml")

    (folder / "wrong.yaml").write_text("schema: 7\n" + (folder / "host.yaml").read_text("utf-8"), encoding="utf-8")
    unreachable = "schema: 2\ntests:\n  test_host.py::test_copy: {bandwidth: 1 TB/s}\n"
    (folder / "unreachable.yaml").write_text(unreachable, encoding="utf-8")
    copy = ("--bandwidth-device=cpu", "test_host.py::test_copy", *QUICK, "-o", "bandwidth_confirm=0")
    found["exit"] = {
        "measured": first.returncode,
        "regressed": run(folder, "pytest", *copy, "--bandwidth-baseline=unreachable.yaml").returncode,
        "bad baseline": run(folder, "pytest", *host, "--bandwidth-baseline=wrong.yaml").returncode,
        "unknown device": run(folder, "pytest", "test_host.py", "--bandwidth-device=abacus").returncode,
        "strict without a baseline": run(folder, "pytest", *host, "--bandwidth-strict").returncode,
        "report": run(folder, "pytest_bandwidth.cli", "report", "host.json").returncode,
        "no such file": run(folder, "pytest_bandwidth.cli", "report", "absent.json").returncode,
        "no such command": run(folder, "pytest_bandwidth.cli", "abacus").returncode,
        "valid baseline": run(folder, "pytest_bandwidth.cli", "baseline", "validate", "host.yaml").returncode,
        "invalid baseline": run(folder, "pytest_bandwidth.cli", "baseline", "validate", "wrong.yaml").returncode,
    }
    commands = re.findall(r"^    ([a-z]+)\b", run(folder, "pytest_bandwidth.cli", "--help").stdout, re.MULTILINE)
    found["commands"] = {name: options(run(folder, "pytest_bandwidth.cli", name, "--help").stdout) for name in commands}

    counted = run(folder, "pytest", "--bandwidth-device=traffic", "test_counted.py", "-p", "no:cacheprovider",
                  "--bandwidth-baseline=counts.yaml", "--bandwidth-update", "--bandwidth-json=counts.json")  # fmt: skip
    assert counted.returncode == 0, counted.stdout + counted.stderr
    document = json.loads((folder / "counts.json").read_text(encoding="utf-8"))
    found["traffic document"] = without_machine(shape(document))
    found["traffic baseline"] = baseline_of(folder / "counts.yaml")
    return found


@pytest.mark.slow
def test_what_users_depend_on_is_as_it_was(tmp_path):
    pytest.importorskip("numba", reason="the host's kernels need the extra cpu")
    pytest.importorskip("cuda.bindings", reason="counting needs the extra traffic")
    now, before = contract(tmp_path), json.loads(CONTRACT.read_text(encoding="utf-8"))
    for part in before:
        now_known, before_known = both_known(now.get(part), before[part])
        assert now_known == before_known, part
    assert now.keys() == before.keys()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as where:
        found, copy = contract(Path(where)), json.loads(CONTRACT.read_text(encoding="utf-8"))
    for part, now_known in found.items():  # what this machine, or this run, left out stays as it was
        ours, theirs = both_known(now_known, copy.get(part))
        found[part] = copy[part] if ours == theirs else now_known
    CONTRACT.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
