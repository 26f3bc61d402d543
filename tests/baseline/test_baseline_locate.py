"""A folder holds one file per device, and the right one is found by what the files say, not by their names."""

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from updater_processes import without_privileges

from pytest_bandwidth import baseline as baseline_files
from pytest_bandwidth.domain.baseline import Baseline, BaselineDevice, Entry
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import BaselineError

A100 = DeviceIdentity("cuda", "NVIDIA A100-SXM4-80GB", 80 * 2**30, "GPU-1", timed_on="gpu")
ENTRY = Entry("tests/test_a.py::test_a", 5.0)


def write(path, header):
    path.write_text(f"schema: 2\n{header}tests:\n")
    return path


def test_a_file_is_itself(tmp_path):
    for path in (tmp_path / "none.yaml", write(tmp_path / "there.yaml", ""), write(tmp_path / "no_suffix", "")):
        assert baseline_files.find_file(path, A100) == path


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("AMD EPYC 7B13 (2 threads)", "amd-epyc-7b13-2-threads.yaml"),
        ("../../etc/passwd", "etc-passwd.yaml"),
        ("日本", "device.yaml"),
        ("x" * 300, "x" * 100 + ".yaml"),
    ],
)
def test_any_name_makes_a_harmless_file_name(tmp_path, name, file):
    assert baseline_files.find_file(tmp_path, replace(A100, name=name)) == tmp_path / file


def test_the_header_decides(tmp_path):
    write(tmp_path / "nvidia-a100-sxm4-80gb.yaml", "device: {name: NVIDIA H200}\n")
    ours = write(tmp_path / "ours.yml", "device: {name: NVIDIA A100-SXM4-80GB}\n")
    (tmp_path / "notes.txt").write_text("no baseline")
    (tmp_path / ".hidden.yaml").write_text("no baseline")
    assert baseline_files.find_file(tmp_path, A100) == ours
    h200 = replace(A100, name="NVIDIA H200")
    assert baseline_files.find_file(tmp_path, h200) == tmp_path / "nvidia-a100-sxm4-80gb.yaml"


def test_devices_of_one_name_are_told_apart_by_memory_and_kind(tmp_path):
    small = replace(A100, memory_bytes=40 * 2**30)
    traffic = replace(A100, kind="traffic", memory_bytes=None)
    paths = []
    for identity in (A100, small, traffic):
        path = baseline_files.find_file(tmp_path, identity)
        assert not path.exists()
        baseline_files.update(path, identity, [ENTRY])
        paths.append(path)
    assert [path.name for path in paths] == [
        "nvidia-a100-sxm4-80gb.yaml",
        "nvidia-a100-sxm4-80gb-40gib.yaml",
        "nvidia-a100-sxm4-80gb-2.yaml",
    ]
    assert [baseline_files.find_file(tmp_path, identity) for identity in (A100, small, traffic)] == paths


def test_a_file_by_hand_that_names_no_device_is_used(tmp_path):
    ours = write(tmp_path / "by_hand.yaml", "")
    write(tmp_path / "h200.yaml", "device: {name: NVIDIA H200}\n")
    assert baseline_files.find_file(tmp_path, A100) == ours
    baseline_files.update(ours, A100, [ENTRY])
    assert baseline_files.find_file(tmp_path, A100) == ours
    assert baseline_files.find_file(tmp_path, replace(A100, name="NVIDIA H100")) != ours


@pytest.mark.parametrize("header", ["", "device: {name: NVIDIA A100-SXM4-80GB}\n"])
def test_a_nameless_file_beside_the_devices_own_is_told_what_to_add(tmp_path, header):
    other = write(tmp_path / "a.yaml", header)
    nameless = write(tmp_path / "b.yaml", "")
    if not header:
        nameless, other = other, nameless
    with pytest.raises(BaselineError) as caught:
        baseline_files.find_file(tmp_path, A100)
    assert str(caught.value) == (
        f"{nameless}:1: found no device, expected one because {other} is in the same folder: add device: "
        "{name: NVIDIA A100-SXM4-80GB, memory_gib: 80, kind: cuda}"
    )


def test_two_files_of_one_device_are_an_error(tmp_path):
    write(tmp_path / "a.yaml", "device: {name: NVIDIA A100-SXM4-80GB}\n")
    write(tmp_path / "b.yaml", "device: {name: NVIDIA A100-SXM4-80GB, memory_gib: 80}\n")
    with pytest.raises(
        BaselineError, match=r"b\.yaml:1: found the device 'NVIDIA A100-SXM4-80GB', expected it in one .*a\.yaml"
    ):
        baseline_files.find_file(tmp_path, A100)


@pytest.mark.parametrize(
    "text",
    [
        "schema: 2\ntests:\ndevice: {name: NVIDIA A100-SXM4-80GB}\n",
        "schema: 2\ntests: {}\ndevice: {name: NVIDIA A100-SXM4-80GB}\n",
        "{schema: 2, device: {name: NVIDIA A100-SXM4-80GB}, tests: {}}\n",
        "schema: 2\ndevice: {name: NVIDIA A100-SXM4-80GB}\ntests:\n  another: [problem]\n",
    ],
)
def test_the_header_is_found_wherever_it_stands(tmp_path, text):
    (tmp_path / "odd.yaml").write_text(text)
    assert baseline_files.find_file(tmp_path, A100) == tmp_path / "odd.yaml"


def test_a_bad_file_hides_no_device(tmp_path):
    (tmp_path / "bad.yaml").write_text("schema: 2\ntests: [\n")
    with pytest.raises(BaselineError, match=r"bad\.yaml:3: found text that is not YAML"):
        baseline_files.find_file(tmp_path, A100)
    ours = write(tmp_path / "ours.yaml", "device: {name: NVIDIA A100-SXM4-80GB}\n")
    assert baseline_files.find_file(tmp_path, A100) == ours


@pytest.mark.parametrize(
    ("device", "fits"),
    [
        (None, True),
        (BaselineDevice("NVIDIA A100-SXM4-80GB"), True),
        (BaselineDevice("NVIDIA A100-SXM4-80GB", 80, "cuda"), True),
        (BaselineDevice("NVIDIA A100-SXM4-80GB", 40), False),
        (BaselineDevice("NVIDIA A100-SXM4-80GB", kind="traffic"), False),
        (BaselineDevice("NVIDIA H200", 80), False),
    ],
)
def test_another_devices_baseline_is_refused(device, fits):
    baseline = Baseline(device, {}, path="b.yaml")
    if fits:
        baseline_files.check_device(baseline, A100)
        baseline_files.check_device(baseline, replace(A100, memory_bytes=None))  # unknown
        return
    with pytest.raises(BaselineError) as caught:
        baseline_files.check_device(baseline, A100)
    assert device.name in str(caught.value)
    assert "'NVIDIA A100-SXM4-80GB' (80 GiB, cuda)" in str(caught.value)
    other_kind = device.kind not in (None, A100.kind)
    assert str(caught.value).endswith(f", or choose --bandwidth-device={device.kind}") is other_kind
    assert len(str(caught.value).splitlines()) == 1


def test_a_folder_of_countless_files_is_refused(tmp_path):
    for number in range(1001):
        (tmp_path / f"{number}.yaml").touch()
    with pytest.raises(BaselineError, match="found 1001 YAML files, expected a folder of at most 1000 baselines"):
        baseline_files.find_file(tmp_path, A100)


def test_a_folder_or_file_that_may_not_be_read_is_told():
    with tempfile.TemporaryDirectory() as folder, without_privileges():
        if os.access(folder, os.R_OK, effective_ids=True):
            pytest.skip("root reads every file: run the tests as another user")
        with pytest.raises(BaselineError, match=r"found a folder that cannot be read \(Permission denied\)"):
            baseline_files.find_file(Path(folder), A100)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = write(Path(folder, "a.yaml"), "")
        path.chmod(0)
        with without_privileges(), pytest.raises(BaselineError, match=r"cannot be read \(Permission denied\)"):
            baseline_files.load(path)


def test_the_file_that_keeps_the_most_code_serves_other_devices_of_its_kind(tmp_path):
    with_code = [replace(ENTRY, key=f"t.py::t{n}", code={"ptx": "a" * 32, "launch": "b" * 32}) for n in range(3)]
    assert baseline_files.find_code(tmp_path / "none", A100) is None
    baseline_files.update(tmp_path / "a.yaml", A100, [ENTRY])
    assert baseline_files.find_code(tmp_path, A100) is None, "no entry of it keeps code"
    counted = DeviceIdentity("traffic", "traffic sm_90", None, "model", timed_on="nothing")
    baseline_files.update(tmp_path / "traffic.yaml", counted, with_code)
    baseline_files.update(tmp_path / "b.yaml", replace(A100, name="B"), with_code[:1])
    assert baseline_files.find_code(tmp_path, A100) == tmp_path / "b.yaml"
    baseline_files.update(tmp_path / "c.yaml", replace(A100, name="C"), with_code[:2])
    assert baseline_files.find_code(tmp_path, A100) == tmp_path / "c.yaml"


def test_every_problem_of_every_file_is_told_whosever_it_is(tmp_path):
    write(tmp_path / "a.yaml", "device: {name: A}\ntolerance: 5\n")
    write(tmp_path / "b.yaml", "device: {name: B}\n")
    (tmp_path / "c.yaml").write_text("schema: 2\ntests:\n  c: {bandwidth: fast}\n")
    with pytest.raises(BaselineError) as raised:
        list(baseline_files.load_all(tmp_path))
    assert [(Path(problem.file).name, problem.line) for problem in raised.value.problems] == [
        ("a.yaml", 3),
        ("c.yaml", 3),
    ]
    with pytest.raises(BaselineError, match=r"a\.yaml:3: "):
        list(baseline_files.load_all(tmp_path / "a.yaml"))
