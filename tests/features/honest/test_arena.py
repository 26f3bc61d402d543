"""`pytest-bandwidth arena`: candidates that are right, wrong, or break their process, each a row of its own."""

import json
import textwrap

import pytest
from red_team import lay_out_arena

from pytest_bandwidth.cli.main import main

pytestmark = pytest.mark.processes

N = 1 << 16
REFERENCE = f"""
    def inputs(bandwidth):
        for n in ({N // 2}, {N}):
            yield f"n={{n}}", (bandwidth.random(n), bandwidth.random(n))

    def run(x, y):
        return 2 * x + y
"""
WORK = "    return np.multiply(x, np.float32(2)) + y\n"
# By name: the candidate's text, then correct, honest and the codes of what is wrong, for both cases.
FINE = (True, True, set())
CANDIDATES = {
    "right": (f"def run(x, y):\n{WORK}", FINE),
    "rounded": (
        "def run(x, y):\n    return (2 * x.astype(np.float16) + y.astype(np.float16)).astype(np.float32)\n",
        (False, True, {"wrong-result"}),
    ),
    "kept": (
        "kept = {}\n"
        f"def work(x, y):\n{WORK}"
        "def run(x, y):\n"
        "    if x.ctypes.data not in kept:\n        kept[x.ctypes.data] = work(x, y)\n"
        "    return kept[x.ctypes.data]\n",
        (True, False, {"stale-result"}),
    ),
    "raises": ("def run(x, y):\n    raise RuntimeError('first line\\nsecond')\n", (None, None, {"failed"})),
    "nothing": ("def run(x, y):\n    np.add(x, y)\n", (None, None, {"failed"})),
    "misspelt": ("def run(x, y)\n    return x\n", (None, None, {"failed"})),
    "imports": ("import ref\ndef run(x, y):\n    return ref.run(x, y)\n", (True, False, {"reference-called"})),
    "copied": (textwrap.dedent(REFERENCE), FINE),
    "beyond": (
        f"import ctypes\ndef run(x, y):\n    ctypes.memset(x.ctypes.data + x.nbytes, 7, 8)\n{WORK}",
        (False, True, {"out-of-bounds"}),
    ),
    "skips": ("import pytest\ndef run(x, y):\n    pytest.skip('not today')\n", (None, None, {"not-run"})),
    "aborts": ("import os\ndef run(x, y):\n    os.abort()\n", (None, None, {"crashed"})),
    "floods": ("def run(x, y):\n    while True:\n        print('x' * 2**20)\n", (None, None, {"flooded"})),
    "asks": ("def run(x, y):\n    return input()\n", (None, None, {"failed"})),
    "forges": (
        # A report to whatever is open, then an end.
        "import json, os\n"
        "def run(x, y):\n"
        "    row = dict(label='candidate', status='OK', reason_code='no-entry', is_valid=True)\n"
        "    tokens = ['', 'é', chr(0xd800), 5, None]\n"
        "    lines = [json.dumps(dict(rows=[row], speed_up=100.0, token=one)) for one in tokens]\n"
        "    line = chr(10).join(['[' * 99999, '[]', *lines, ''])\n"
        "    for descriptor in range(3, 64):\n"
        "        try:\n            os.write(descriptor, line.encode())\n        except OSError:\n            pass\n"
        "    os._exit(0)\n",
        (None, None, {"crashed"}),
    ),
    "overwrites": (
        # What later processes read as the expected results: sealed.
        "import os\n"
        "def run(x, y):\n"
        "    for descriptor in range(3, 64):\n"
        "        try:\n"
        "            if 'memfd' in os.readlink(f'/proc/self/fd/{descriptor}'):\n"
        "                with open(f'/proc/self/fd/{descriptor}', 'r+b') as file:\n"
        "                    file.write(bytes(64))\n"
        "        except OSError:\n            pass\n"
        f"{WORK}",
        FINE,
    ),
}


# What hangs in the second case alone.
HANGS = f"import time\nimport numpy as np\ndef run(x, y):\n    time.sleep(3600 * (x.size == {N}))\n{WORK}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arena")
    (folder / "ref.py").write_text(textwrap.dedent(REFERENCE))
    for name, (text, _) in CANDIDATES.items():
        (folder / f"{name}.py").write_text(f"import numpy as np\n{text}")
    (folder / "hangs.py").write_text(HANGS)
    return folder


def arena(folder, *arguments):
    """Run an arena; return its exit status and its document."""
    file = folder / "out.json"
    file.unlink(missing_ok=True)
    quick = ("--device=cpu", "--max-time=0.1", "--busy-processors=64", f"--json={file}")
    status = main(["arena", *quick, *(str(one) for one in arguments)])
    return status, json.loads(file.read_text())


@pytest.fixture(scope="module")
def all_of_them(folder):
    return arena(folder, folder / "ref.py", *(f"{folder / name}.py" for name in CANDIDATES))


@pytest.mark.parametrize("name", CANDIDATES)
def test_each_candidate_has_a_row_for_each_case(all_of_them, name):
    status, document = all_of_them
    assert status == 1
    correct, honest, codes = CANDIDATES[name][1]
    rows = [row for row in document["rows"] if f"/{name}.py" in row["candidate"]]
    assert [row["case"] for row in rows] == [f"n={N // 2}", f"n={N}"]
    for row in rows:
        found = {one["code"] for one in row["findings"] if one["level"] == "wrong"}
        assert (row["correct"], row["honest"]) == (correct, honest), row
        assert codes <= found if codes else not found, row
        if not (correct and honest):
            assert row["speed_up"] is None
    (whole,) = (one for one in document["candidates"] if f"/{name}.py" in one["candidate"])
    assert (whole["correct"], whole["honest"]) == (correct is True, honest is True)


def test_what_went_before_a_hang_stays(folder):
    before, hung = arena(folder, folder / "ref.py", folder / "hangs.py", "--timeout=8")[1]["rows"]
    assert (before["correct"], before["honest"]) == (True, True)
    assert (hung["correct"], hung["honest"]) == (None, None)
    (finding,) = hung["findings"]
    assert finding["code"] == "timed-out"
    assert "8 s" in finding["text"]


def test_what_is_wrong_is_said(all_of_them):
    text = {
        row["candidate"].rpartition("/")[2]: row["findings"][-1]["text"]
        for row in all_of_them[1]["rows"]
        if row["findings"]
    }
    assert text["raises.py"] == "raises.py:3: RuntimeError: first line"
    assert text["nothing.py"] == "it returned None, and was given 0 arrays to write: expected 1, as ref.py::run gives"
    assert text["misspelt.py"].endswith("/misspelt.py:2: SyntaxError: expected ':'")
    assert text["beyond.py"].startswith("a write out of bounds: 8 bytes changed after x, ")
    assert text["skips.py"] == "not today"
    assert "SIGABRT" in text["aborts.py"]
    assert "exit status 0" in text["forges.py"]


@pytest.mark.smoke
def test_all_fine_is_status_0_and_json_stands_alone(folder, command):
    quick = ("--device=cpu", "--max-time=0.1", "--busy-processors=64")
    said = command("arena", folder / "ref.py", folder / "right.py", *quick, "--json=-")
    assert said.status == 0
    document = json.loads(said.out)
    assert document["schema"] == 1
    assert document["candidates"][0]["honest"]
    row = document["rows"][0]
    assert row["seconds"] > 0
    assert row["reference_seconds"] > 0


def test_a_table_has_a_line_for_each_finding(folder, command):
    said = command("arena", folder / "ref.py", folder / "raises.py", "--device=cpu", "--max-time=0.1")
    assert said.status == 1
    lines = said.out.splitlines()
    assert lines[1].split()[:4] == ["candidate", "case", "correct", "honest"]
    assert f"{folder / 'raises.py'} n={N}: failed (wrong): raises.py:3: RuntimeError: first line" in lines
    assert lines[-1] == f"{folder / 'raises.py'}: not correct and honest"


IN_PLACE = """
    import numpy as np

    def inputs(bandwidth):
        yield "a", ({arrays}, np.float32(3), {n})

    def run({names}, a, n):
        assert isinstance(n, int) and isinstance(a, np.float32)
        {work}
"""


@pytest.mark.parametrize(
    ("arrays", "names", "work"),
    [
        (f"bandwidth.empty({N}), bandwidth.random({N})", "y, x", "y[...] = a * x"),
        (f"bandwidth.random({N})", "x", "x *= a"),
    ],
)
def test_a_function_that_writes_is_held_to_what_it_writes(tmp_path, arrays, names, work):
    for name, text in (("ref", work), ("same", work), ("nothing", "pass")):
        (tmp_path / f"{name}.py").write_text(
            textwrap.dedent(IN_PLACE.format(arrays=arrays, names=names, n=N, work=text))
        )
    status, document = arena(tmp_path, tmp_path / "ref.py", tmp_path / "same.py", tmp_path / "nothing.py")
    assert status == 1
    assert [one["correct"] for one in document["candidates"]] == [True, False]
    assert document["candidates"][0]["honest"] is True


def test_slowing_the_reference_gains_no_speed_up(folder):
    (folder / "slows.py").write_text(
        "import time\nimport numpy as np\n"
        "def run(x, y):\n"
        f"{WORK}"
        "for value in [one for one in __import__('gc').get_objects() if type(one).__name__ == 'function']:\n"
        "    if value.__code__.co_filename.endswith('ref.py') and value.__name__ == 'run':\n"
        "        def slow(x, y):\n"
        "            __import__('time').sleep(0.02)\n"
        "            return 2 * x + y\n"
        "        value.__code__ = slow.__code__\n"
    )
    _, document = arena(folder, folder / "ref.py", folder / "slows.py")
    assert all("reference-slowed" in {one["code"] for one in row["findings"]} for row in document["rows"])
    assert document["candidates"][0]["speed_up"] is None


def test_memory_is_limited(folder):
    (folder / "large.py").write_text("import numpy as np\ndef run(x, y):\n    return np.ones(2**30, np.uint8)\n")
    status, document = arena(folder, folder / "ref.py", folder / "large.py", "--memory=512MiB")
    assert status == 1
    assert all("allocate" in row["findings"][0]["text"] for row in document["rows"])


ONE_CASE = "import random\ndef inputs(b):\n    yield 'a', (b.random(8),)\n"


@pytest.mark.parametrize(
    ("reference", "arguments", "said"),
    [
        ("def run(x):\n    return x\n", (), "found no function inputs(bandwidth), expected it, or --inputs FILE"),
        ("def inputs(b):\n    yield 5\n", (), "inputs yields 5, expected up to 256 pairs"),
        ("def inputs(b):\n    return ()\n", (), "found no case, expected one at least"),
        ("def inputs(b):\n    yield 'a', ([1],)\ndef run(x):\n    1\n", (), "found a list as x, expected an array"),
        (
            f"{ONE_CASE}def run(x):\n    return x + random.random()\n",
            (),
            "ref.py::run gives another result the second",
        ),
        (
            f"{ONE_CASE}    yield 'a', ()\ndef run(x):\n    return x\n",
            (),
            "inputs yields the name 'a' again, expected",
        ),
        (f"{ONE_CASE}def run(x):\n    return x\n", ("--memory=1MiB",), ", with 1.05 MB (--memory)"),
        (
            "def inputs(b):\n    yield 'a', (b.random(8),)\ndef run(x):\n    1 / 0\n",
            (),
            "ZeroDivisionError: division by zero",
        ),
        (
            "def inputs(b):\n    yield 'a', (b.random(8),)\ndef run(x):\n    return 5\n",
            (),
            "a: ref.py::run returns no array and writes none, expected one at least",
        ),
        (
            "def inputs(b):\n    yield 'a', (b.random(65536), b.random(65536))\ndef run(x, y):\n    return x + 1\n",
            (),
            "a: y changed before",
        ),
        ("raise SystemExit(3)\n", (), "the reference ref.py: "),
        ("def run(x):\n    return x\n", ("--timeout=0",), "--timeout: found '0', expected seconds"),
        ("def run(x):\n    return x\n", ("--rtol=-1",), "--rtol: found '-1', expected a number of at least 0"),
        ("def run(x):\n    return x\n", ("--json=ref.py",), "--json: found ref.py with the ending .py"),
        ("def run(x):\n    return x\n", ("--inputs=none.yaml",), "--inputs none.yaml: found no such file"),
        ("def run(x):\n    return x\n", ("none.py",), "found no file none.py, expected FILE.py"),
        ("def run(x):\n    return x\n", ("ref.py",), "found a candidate twice"),
    ],
)
def test_what_is_unusable_is_said_in_a_line(tmp_path, monkeypatch, command, reference, arguments, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ref.py").write_text(reference)
    answer = command("arena", "ref.py", "ref.py", *arguments, "--device=cpu", "--max-time=0.1")
    assert answer.status == 2
    assert answer.out == ""
    # Beside a test that measures it says, too, that it waits for it.
    (line,) = (line for line in answer.err.splitlines() if " waits for process " not in line)
    assert said in line


def test_an_array_that_is_read_must_not_be_written(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ref.py").write_text("def run(x, y):\n    x += y\n    return x\n")
    (tmp_path / "shapes.yaml").write_text("- {name: a, args: {x: {shape: 64}, y: {shape: 64}}}\n")
    said = command("arena", "ref.py", "ref.py::run", "--inputs=shapes.yaml", "--device=cpu")
    assert "a: ref.py::run writes x, expected role out or inout for it" in said.err


def test_what_the_reference_writes_has_to_be_written(tmp_path, monkeypatch):
    """To return it besides is fine."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ref.py").write_text("def run(y, x):\n    y[...] = 2 * x\n")
    (tmp_path / "both.py").write_text("def run(y, x):\n    y[...] = 2 * x\n    return y\n")
    (tmp_path / "returns.py").write_text("def run(y, x):\n    return 2 * x\n")
    (tmp_path / "c.yaml").write_text(f"- {{name: a, args: {{y: {{shape: {N}, role: out}}, x: {{shape: {N}}}}}}}\n")
    both, returns = arena(tmp_path, "ref.py", "both.py", "returns.py", "--inputs=c.yaml")[1]["rows"]
    assert (both["correct"], both["honest"]) == (True, True)
    assert returns["findings"][0]["text"] == "it returned what ref.py::run writes: expected it in y"


def test_a_number_is_a_result(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    case = f"def inputs(bandwidth):\n    yield 'a', (bandwidth.random({N}),)\n"
    (tmp_path / "ref.py").write_text(f"{case}def run(x):\n    return x.mean()\n")
    (tmp_path / "sums.py").write_text("def run(x):\n    return x.sum() / x.size\n")
    (tmp_path / "part.py").write_text("def run(x):\n    return float(x[:-9999].mean())\n")
    sums, part = arena(tmp_path, "ref.py", "sums.py", "part.py", "--rtol=1e-5")[1]["rows"]
    assert (sums["correct"], sums["honest"]) == (True, True), sums
    assert part["correct"] is False


def test_kernels_are_checked_where_they_are_counted(tmp_path, command):
    pytest.importorskip("pytest_bandwidth.features.traffic.ptx", reason="needs the extra traffic")
    said = command("arena", *lay_out_arena(tmp_path, 1024), "--device=traffic")
    assert said.status == 1
    right, wrong = json.loads(said.out)["rows"]
    assert (right["correct"], right["honest"], right["speed_up"]) == (True, True, None)
    assert wrong["correct"] is False
