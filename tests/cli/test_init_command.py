"""`pytest-bandwidth init`: what it writes for what a repository holds, what it leaves, and its first test, run."""

import os
from pathlib import Path

import pytest

from pytest_bandwidth.cli import init

SCALE = """
extern "C" __global__ void scale(float* out, const float* in, float s, int n) {  // out, in
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = s * in[i];
}
"""
IN_PLACE = SCALE.replace("const float* in, ", "").replace("s * in[i]", "s * out[i]").replace('extern "C" ', "")
GATHER = """
template <typename T> __global__ void other(T* x) { x[0] = 0; }
extern "C" __global__ void __launch_bounds__(256) gather(
    const double *__restrict__ from, unsigned int const* places, double* __restrict__ to, const size_t n)
{
    size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = from[places[i]];
}
"""
ROWS = """
extern "C" __global__ void rows(const float* x, float* y, int height, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < height * width) y[i % width * height + i / width] = x[i];
}
"""
IMPORTS = {"triton": "traffic", "torch": "cpu", "cupy": "cuda"}
PLAIN = {"kernels.py": "import cupy\n"}


def made(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def held(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def next_command(said):
    assert said.status == 0, said.err
    start, *words = said.out.splitlines()[-1].split()
    assert (start, words[0]) == ("next:", "pytest")
    return words[1:]


@pytest.mark.parametrize("source", [IN_PLACE, GATHER, ROWS], ids=["in-place", "gather", "rows"])
@pytest.mark.usefixtures("traffic_loaded")
def test_the_first_test_of_a_cuda_file_passes_as_written_and_with_its_baseline(command, project, source):
    project.file("src/kernel.cu", source)
    project.file("tests/empty.py", "import torch\n")
    said = command("init", project.path)
    assert next_command(said)[0] == str(project.path / "tests" / "test_bandwidth.py")
    result = project.run_here(*next_command(said), quick=False)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["1 measured: 1 SAVED"])
    assert list((project.path / "baselines").glob("*.yaml"))
    result = project.run_here("--bandwidth-device=traffic", "--bandwidth-strict", quick=False)
    result.stdout.fnmatch_lines(["1 measured: 1 OK"])


@pytest.mark.parametrize("name", IMPORTS)
def test_the_first_test_of_an_import_runs_on_its_device_or_says_what_that_lacks(command, project, name):
    project.file("src/model.py", f"def f():\n    from {name}.inner import x\n")
    words = next_command(command("init", project.path))
    assert words[1] == f"--bandwidth-device={IMPORTS[name]}"
    if name != "cupy":
        pytest.importorskip(name, reason=f"{name} is not installed: make frameworks")
    result = project.run(*words, quick=False)
    if IMPORTS[name] in ("cpu", "traffic"):
        result.assert_outcomes(passed=1)
    else:
        result.stderr.fnmatch_lines(["ERROR: *"])
        project.run("--bandwidth-update").assert_outcomes(skipped=1)


def test_a_kernel_comes_before_imports_and_triton_before_pytorch(command, tmp_path):
    files = {"a.py": "import torch, os\n", "b.py": "import triton.language\n", "k/scale.cu": SCALE}
    words = next_command(command("init", made(tmp_path, files)))
    assert words == [str(tmp_path / "test_bandwidth.py"), "--bandwidth-device=traffic", "--bandwidth-update"]
    assert 'bandwidth.kernel("k/scale.cu", "scale")' in (tmp_path / "test_bandwidth.py").read_text()
    (tmp_path / "test_bandwidth.py").unlink()
    (tmp_path / "k/scale.cu").write_text("__global__ void f(float** x) {}\n")
    assert next_command(command("init", tmp_path))[1] == "--bandwidth-device=traffic"
    assert "import triton" in (tmp_path / "b.py").read_text()


def test_kernels_of_which_no_test_is_written_are_named(command, tmp_path):
    text = f"import cupy\nk = cupy.RawKernel('''{SCALE}''', 'scale')\n"
    files = {
        "raw.py": text,
        "tested.py": f"{text}\ndef test_k(bandwidth):\n    bandwidth.kernel(TEXT)\n",
        "k/odd.cu": "__global__ void f(float** x) {}\n",
        "k/scale.cu": SCALE,
        "k/main.cu": "int main() {}\n",
    }
    said = command("init", made(tmp_path, files))
    next_command(said)
    assert [line for line in said.out.splitlines() if line.startswith("not taken: ")] == [
        "not taken: raw.py: kernels in Python strings: pass those to `bandwidth.kernel`",
        "not taken: k/odd.cu: no kernel over arrays of numbers",
    ]


@pytest.mark.parametrize("files", [{}, {"a.py": "import numpy\nfrom .torch import x\n", "b.txt": "import torch"}])
def test_where_nothing_is_to_be_measured_nothing_is_written(command, tmp_path, files):
    before = held(made(tmp_path, files))
    said = command("init", tmp_path)
    assert (said.status, said.out, held(tmp_path)) == (2, "", before)
    assert len(said.err.splitlines()) == 1
    assert command("init", tmp_path / "nowhere").status == 2


SETTINGS = [
    ("pytest.ini", "[pytest]\naddopts = -q\n", "[pytest]\nbandwidth_baseline = baselines\naddopts = -q\n"),
    ("tox.ini", "[tox]\r\n\r\n[pytest]  # é\r\n", "[tox]\r\n\r\n[pytest]  # é\r\nbandwidth_baseline = baselines\r\n"),
    ("setup.cfg", "[metadata]\n[tool:pytest]", "[metadata]\n[tool:pytest]\nbandwidth_baseline = baselines"),
    (
        "pyproject.toml",
        "[project]\nname = 'x'\n[tool.pytest.ini_options]\n",
        "[project]\nname = 'x'\n[tool.pytest.ini_options]\nbandwidth_baseline = \"baselines\"\n",
    ),
]


@pytest.mark.parametrize(("name", "before", "after"), SETTINGS, ids=[name for name, _, _ in SETTINGS])
def test_the_option_goes_where_pytests_settings_are(command, pytester, name, before, after):
    made(pytester.path, {**PLAIN, "pyproject.toml": "[project]\n"})
    (pytester.path / name).write_bytes(before.encode())
    said = command("init", pytester.path)
    assert said.status == 0
    assert f"wrote {pytester.path / name}: bandwidth_baseline = " in said.out
    assert (pytester.path / name).read_bytes() == after.encode()
    assert not (pytester.path / "pytest.ini").exists() or name == "pytest.ini"
    assert pytester.parseconfig(f"--rootdir={pytester.path}").getini("bandwidth_baseline") == "baselines"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pytest.ini", ""),
        ("pytest.ini", "[pytest]\nbandwidth_baseline = elsewhere\n"),
        ("pyproject.toml", "[tool.pytest]\nini_options = {addopts = '-q'}\n"),
        ("pyproject.toml", "tool.pytest.ini_options.addopts = '-q'\n"),
    ],
)
def test_settings_that_are_there_stay_and_that_is_said(command, tmp_path, name, text):
    made(tmp_path, {**PLAIN, name: text})
    said = command("init", tmp_path)
    assert f"left {tmp_path / name} as it is: look for bandwidth_baseline = baselines\n" in said.out
    assert (tmp_path / name).read_text() == text


def test_a_second_time_changes_nothing(command, tmp_path):
    made(tmp_path, {**PLAIN, ".gitattributes": "*.bin binary"})
    first = command("init", tmp_path)
    after = held(tmp_path)
    assert after[".gitattributes"] == b"*.bin binary\n*.runs.jsonl merge=union\n"
    assert after["pytest.ini"] == b"[pytest]\nbandwidth_baseline = baselines\n"
    second = command("init", tmp_path)
    assert (second.status, held(tmp_path)) == (0, after)
    assert [line.split()[0] for line in first.out.splitlines()] == ["wrote", "wrote", "wrote", "next:"]
    assert [line.split()[0] for line in second.out.splitlines()] == ["left", "left", "left", "next:"]


def test_a_test_of_that_name_is_never_overwritten(command, tmp_path):
    made(tmp_path, {**PLAIN, "elsewhere": "mine"})
    (tmp_path / "test_bandwidth.py").symlink_to("nowhere")
    said = command("init", tmp_path)
    assert f"left {tmp_path / 'test_bandwidth.py'} as it is: look for the first test\n" in said.out
    assert not (tmp_path / "nowhere").exists()


def test_hostile_files_are_passed_over_and_none_is_executed(command, tmp_path):
    made(
        tmp_path,
        {
            "a.py": "def broken(:\n    import torch\n",
            "b.py": "import torch\0",
            "c.py": "(" * 10_000,
            "d.py": "'\\d'\nimport cupy\nopen('ran', 'w')\nraise SystemExit(3)\n",
            ".venv/e.py": "import torch\n",
            "env/pyvenv.cfg": "",
            "env/f.py": "import torch\n",
        },
    )
    (tmp_path / "g.py").write_bytes(b"\xff\xfeimport torch\n")
    with (tmp_path / "h.py").open("w") as large:
        large.write("import torch\n")
        large.truncate(100 * 2**20)
    os.mkfifo(tmp_path / "i.py")
    (tmp_path / "j.cu").symlink_to("j.cu")
    (tmp_path / "k.cu").mkdir()
    assert next_command(command("init", tmp_path))[1] == "--bandwidth-device=cuda"
    assert "def test_sum(bandwidth)" in (tmp_path / "test_bandwidth.py").read_text()
    assert not Path("ran").exists()


def test_no_more_files_are_read_than_the_limit(command, tmp_path, monkeypatch):
    monkeypatch.setattr(init, "MOST_FILES", 2)
    assert command("init", made(tmp_path, {"a.py": "", "b.py": "", "c.py": "import torch\n"})).status == 2
