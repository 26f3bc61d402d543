"""What a baseline file may say, and the one line for each thing that it may not."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from pytest_bandwidth import baseline as baseline_files
from pytest_bandwidth.domain.baseline import BaselineDevice, Entry, Run
from pytest_bandwidth.domain.errors import BaselineError

HEAD = "schema: 1\nentries:\n"
DESIGN_EXAMPLE = """\
schema: 1
device: {name: NVIDIA A100-SXM4-80GB, memory_gib: 80}
tolerance: 5%
entries:
  tests/test_stream.py::test_copy:
    bandwidth: 1747.1 GB/s         # this line alone is a valid entry, written by hand
    utilization: 85.7%
    tolerance: 3%
    bytes_read: 268435456
    bytes_written: 268435456
    runs:                          # one line per fresh process, newest last
      - {gbps: 1747.1, probe_gbps: 1754.0, samples: 212, gpu: GPU-8a, commit: 3f2c1ab, at: 2026-11-21T04:00:00Z}
"""


def load(tmp_path: Path, text: str | bytes) -> object:
    path = tmp_path / "baseline.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return baseline_files.load(path)


def problems(tmp_path: Path, text: str | bytes) -> list[str]:
    with pytest.raises(BaselineError) as caught:
        load(tmp_path, text)
    lines = str(caught.value).splitlines()
    assert len(lines) == len(caught.value.problems)
    assert all(line.startswith(f"{tmp_path}/baseline.yaml:") for line in lines)
    return [line.removeprefix(f"{tmp_path}/baseline.yaml:") for line in lines]


def entry(tmp_path: Path, body: str) -> Entry:
    return load(tmp_path, f"{HEAD}  test:\n{body}").entries["test"]  # type: ignore[attr-defined]  # a Baseline


def test_the_example_of_the_documentation(tmp_path: Path) -> None:
    baseline = load(tmp_path, DESIGN_EXAMPLE)
    assert baseline.device == BaselineDevice("NVIDIA A100-SXM4-80GB", 80)
    assert baseline.tolerance == pytest.approx(0.05)
    run = Run(1747.1, 1754.0, samples=212, gpu="GPU-8a", commit="3f2c1ab", at="2026-11-21T04:00:00Z")
    assert baseline.find("tests/test_stream.py::test_copy") == Entry(
        "tests/test_stream.py::test_copy",
        1747.1,
        pytest.approx(0.857),
        pytest.approx(0.03),
        bytes_read=268435456,
        bytes_written=268435456,
        runs=(run,),
    )
    assert baseline.find("tests/test_stream.py::test_copy").line == 5
    assert baseline.find("tests/test_stream.py::test_add") is None


@pytest.mark.parametrize(
    ("text", "gbps"),
    [
        ("1747.1 GB/s", 1747.1),
        ("1747.1", 1747.1),
        ("1747.1GB/s", 1747.1),
        ("1.7471 TB/s", 1747.1),
        ("1 GiB/s", 1.073741824),
        ("'1747.1 GB/s'", 1747.1),
        ("1e3", 1000.0),
        ("0017", 17.0),
    ],
)
def test_bandwidth_with_units(tmp_path: Path, text: str, gbps: float) -> None:
    assert entry(tmp_path, f"    bandwidth: {text}\n").gbps == pytest.approx(gbps)


def test_scalars_stay_text_where_yaml_would_type_them(tmp_path: Path) -> None:
    found = entry(
        tmp_path,
        "    bandwidth: 5\n    method: yes\n    note: 1e5\n"
        "    settings: {ecc: on, mig: 0o17, at: 12:30:45, none: null}\n"
        "    runs:\n      - {gbps: 5, commit: 0123456, gpu: ~}\n",
    )
    assert (found.method, found.note) == ("yes", "1e5")
    assert found.settings == {"ecc": "on", "mig": "0o17", "at": "12:30:45", "none": "null"}
    assert (found.runs[0].commit, found.runs[0].gpu) == ("0123456", "~")


def test_every_field(tmp_path: Path) -> None:
    found = entry(
        tmp_path,
        "    bandwidth: 2 TB/s\n    utilization: 103%\n    tolerance: 0.02\n    judged_on: relative\n"
        "    bytes_read: 1\n    bytes_written: 0\n"
        "    method: events\n    xfail: known slow\n    note: |\n      two\n      lines\n"
        "    resources: {registers: 16}\n    settings: {mig: off}\n"
        "    counts: {load_sectors: 8}\n    anchor: {gbps: 2 TB/s, relative: 1.01}\n    later: kept\n",
    )
    assert found == Entry(
        "test",
        2000.0,
        1.03,
        0.02,
        "relative",
        1,
        0,
        "events",
        "known slow",
        "two\nlines",
        Run(2000.0, relative=1.01),
        {"registers": 16},
        {"mig": "off"},
        {"load_sectors": 8},
        extra={"later": "kept"},
    )


def test_runs_alone_give_the_bandwidth(tmp_path: Path) -> None:
    assert entry(tmp_path, "    runs:\n      - {gbps: 10}\n      - {gbps: 30}\n      - {gbps: 11}\n").gbps == 11.0


def test_counts_alone_are_an_entry(tmp_path: Path) -> None:
    assert entry(tmp_path, "    counts: {load_sectors: 8}\n").gbps is None


@pytest.mark.parametrize(
    "text", [f"{HEAD}", "schema: 1\n", "schema: 1\nentries: {}\n", "---\nschema: '1'\nentries:\n# none yet\n"]
)
def test_a_file_without_entries(tmp_path: Path, text: str) -> None:
    assert load(tmp_path, text).entries == {}


def test_windows_line_ends(tmp_path: Path) -> None:
    assert load(tmp_path, DESIGN_EXAMPLE.replace("\n", "\r\n")).entries == load(tmp_path, DESIGN_EXAMPLE).entries


@pytest.mark.parametrize("indent", [1, 3, 4])
def test_other_indentation(tmp_path: Path, indent: int) -> None:
    blanks = " " * indent
    text = f"{HEAD}{blanks}a::b:\n{blanks * 2}bandwidth: 5\n\n{blanks}c::d: {{bandwidth: 6}}\ntolerance: 7%\n"
    baseline = load(tmp_path, text)
    assert {key: (found.gbps, found.line) for key, found in baseline.entries.items()} == {
        "a::b": (5, 3),
        "c::d": (6, 6),
    }
    assert baseline.tolerance == pytest.approx(0.07)


def test_all_problems_at_once_by_line(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        "schema: 1\ndevice: {name: X, memory_gib: many}\ntolerance: 5\nentries:\n  a:\n    bandwith: 3\n"
        "  b:\n    bandwidth: 5 GX/s\n"
        "    runs:\n      - {gbps: 1}\n      - {gpu: y}\n  c:\n    bandwidth: 1.0 GB/s\n"
        "  c:\n    bandwidth: 1.0 GB/s\n",
    )
    assert [line.split(":")[0] for line in found] == ["2", "3", "6", "8", "11", "14"]
    assert found[2] == "6: found the unknown key 'bandwith' in entry, expected bandwidth"
    assert found[1].startswith("3: tolerance: found '5', expected a fraction below 1 or a percentage such as 5%")
    assert found[5] == "14: found 'c' twice (first on line 12), expected it once"


@pytest.mark.parametrize(
    ("body", "line", "message"),
    [
        ("    bandwidth: nan\n", 4, "bandwidth: found 'nan', expected a number"),
        ("    bandwidth: .inf\n", 4, "bandwidth: found '.inf', expected a number"),
        ("    bandwidth: 1e999\n", 4, "bandwidth: found '1e999', expected a finite number"),
        ("    bandwidth: -5\n", 4, "bandwidth: found '-5', expected a positive bandwidth"),
        ("    bandwidth:\n", 4, "bandwidth: found '', expected a number"),
        ("    bandwidth: [5]\n", 4, "bandwidth: found a list, expected a single value"),
        (
            "    bandwidth: 5\n    tolerance: 120%\n",
            5,
            "tolerance: found '120%', expected at least 0 % and below 100 %",
        ),
        (
            "    bandwidth: 5\n    utilization: 85\n",
            5,
            "utilization: found '85', expected a share below 1 or a percentage",
        ),
        ("    bandwidth: 5\n    judged_on: speed\n", 5, "judged_on: found 'speed', expected relative or gbps"),
        ("    bandwidth: 5\n    bytes_read: 1.5\n", 5, "bytes_read: found '1.5', expected a whole number"),
        ("    bandwidth: 5\n    bytes_read: -1\n", 5, "bytes_read: found '-1', expected a whole number"),
        (f"    bandwidth: 5\n    bytes_read: {2**63}\n", 5, f"bytes_read: found '{2**63}', expected a whole number"),
        ("    bandwidth: 5\n    xfail:\n", 5, "xfail: found nothing, expected some text"),
        ("    bandwidth: 5\n    runs: {gbps: 5}\n", 5, "runs: found a mapping, expected a list with one run per line"),
        ("    bandwidth: 5\n    runs:\n      - 5\n", 6, "run: found the text '5', expected a mapping such as {gbps: "),
        (
            "    bandwidth: 5\n    runs:\n      - {gbps: 5, at: noon}\n",
            6,
            "run.at: found 'noon', expected a time such as",
        ),
        (
            "    bandwidth: 5.0 GB/s\n    runs:\n      - {gbps: -5.0}\n",
            6,
            "run.gbps: found '-5.0', expected a positive",
        ),
        (
            "    bandwidth: 1000000001.0 GB/s\n",
            4,
            "bandwidth: found '1000000001.0 GB/s', expected a bandwidth of 1e+09",
        ),
        (
            "    runs:\n      - {gbps: 1000000001.0}\n",
            5,
            "run.gbps: found '1000000001.0', expected a bandwidth of 1e+09",
        ),
        ("    bandwidth: 5\n    settings: off\n", 5, "settings: found the text 'off', expected a mapping"),
        ("    bandwidth: 5\n    settings: {a: {b: c}}\n", 5, "settings.'a': found a mapping, expected a single value"),
        (
            "    bandwidth: 5\n    later: {a: b}\n",
            5,
            "found the unknown key 'later' in entry, expected one of anchor, bandwidth",
        ),
        ("    bandwidth: 5\n    Tolerance: 3%\n", 5, "found the unknown key 'Tolerance' in entry, expected tolerance"),
        ("    bandwidth: 5\n    bandwidth: 6\n", 5, "found 'bandwidth' twice (first on line 4), expected it once"),
        ("    tolerance: 3%\n", 3, "found neither bandwidth nor counts, expected one of them"),
        ("    {bandwidth: 5, bandwidth: 6}\n", 4, "found 'bandwidth' twice (first on line 4), expected it once"),
        ("    bandwidth: !!python/name:os.system 5\n", 4, "found the tag 'tag:yaml.org,2002:python/name:os.system'"),
        ("    bandwidth: &x 5\n", 4, "found the anchor &x, expected values written out"),
        ('    note: "\\e[31m"\n    bandwidth: 5\n', 4, "found the character U+001B, expected visible text"),
        ('    note: "a\\u2060b"\n    bandwidth: 5\n', 4, "found the character U+2060, expected visible text"),
        (f"    note: {'x' * 9000}\n    bandwidth: 5\n", 4, "found 9000 characters, expected at most 8192"),
        ("    ? [a]\n    : 5\n    bandwidth: 5\n", 4, "found a list or mapping as a key, expected text"),
    ],
)
def test_one_problem_of_an_entry(tmp_path: Path, body: str, line: int, message: str) -> None:
    found = problems(tmp_path, f"{HEAD}  test:\n{body}")
    assert len(found) == 1
    assert found[0].startswith(f"{line}: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1: found an empty file, expected a baseline beginning with schema: 1"),
        ("# nothing\n", "1: found an empty file"),
        ("hello\n", "1: found the text 'hello', expected a baseline beginning with schema: 1"),
        ("- a\n", "1: found a list, expected a baseline"),
        ("entries: {}\n", "1: found no schema, expected schema: 1 as the first line"),
        ("schema: one\n", "1: found schema 'one', expected schema: 1"),
        ("schema: 0\n", "1: found schema '0', expected schema: 1"),
        ("# ours\nschema: 2\nentries: [new, layout]\n", "2: found schema 2, expected at most 1: written by a newer"),
        ("schema: 2\nentries:\n  a: 5\n", "1: found schema 2, expected at most 1: written by a newer pytest-bandwidth"),
        ("schema: 1\nentries: 5\n", "2: entries: found no mapping"),
        ("schema: 1\n---\nschema: 1\n", "2: found a second YAML document, expected one"),
        (f"{HEAD}  a:\n    bandwidth: 5\n---\n", "5: found a second YAML document, expected one"),
        ("%YAML 1.1\n---\nschema: 1\n", "1: found a YAML directive, expected none"),
        (f"{HEAD}  a: {{bandwidth: 5\n", "found text that is no YAML (while parsing a flow mapping"),
        (f"{HEAD}  a:\n\tbandwidth: 5\n", "4: found text that is no YAML"),
        (f"{HEAD}<<<<<<< HEAD\n  a: {{bandwidth: 5}}\n=======\n", "3: found the merge conflict marker"),
        (f"{HEAD}  a: " + "[" * 50, "3: found values nested deeper than 6"),
        (b"\x89PNG\r\n\x1a\n\0\0", "2: found the byte 0x1a, expected text: this is no YAML file"),
        (b"schema: 1\nentries:\n  a: \xff\n", "3: found the byte 0xff, expected UTF-8 text"),
        ("schema: 1\n".encode("utf-16"), "1: found a byte order mark of UTF-16, expected plain UTF-8"),
        ("\ufeffschema: 1\n".encode(), "1: found a byte order mark of UTF-8, expected plain UTF-8"),
        ("schema: 1\nentries:\r\n", "1: found line ends of two kinds"),
        ("schema: 1\rentries:\r", "1: found a lone carriage return"),
        ("schema: 1\n# \u202e\n", "2: found the character U+202E, expected visible text"),
        (f"{HEAD}  tests/test_a.py::test_a\u200b:\n    bandwidth: 5\n", "3: found the character U+200B,"),
        ("schema: 1\n# \x1b[2J\n", "2: found the byte 0x1b, expected text"),
        ("schema: 1\ndevice: A100\n", "2: device: found the text 'A100', expected a mapping"),
        ("schema: 1\ndevice: {memory_gib: 80}\n", "2: device: found no name"),
        ("schema: 1\ntolerence: 5%\n", "2: found the unknown key 'tolerence' in file, expected tolerance"),
    ],
)  # fmt: skip
def test_one_problem_of_a_file(tmp_path: Path, text: str | bytes, message: str) -> None:
    found = problems(tmp_path, text)
    assert len(found) == 1
    assert message in found[0]


def test_a_wrong_median_says_how_to_mend_it(tmp_path: Path) -> None:
    body = "    bandwidth: 20.0 GB/s\n    runs:\n      - {gbps: 10.0}\n      - {gbps: 12.0}\n"
    found = problems(tmp_path, f"{HEAD}  test:\n{body}")
    assert found == [
        "4: found bandwidth '20.0 GB/s', expected 11 GB/s, the median of its runs (2): write that, "
        "or remove the runs to set it by hand"
    ]


@pytest.mark.parametrize(
    ("written", "fine"),
    [
        ("1747.1 GB/s", True),
        ("1747 GB/s", True),
        ("1.75 TB/s", True),
        ("1746.9 GB/s", False),
        ("1.7 TB/s", False),
        ("2 TB/s", False),
    ],
)
def test_rounding_of_a_median_is_no_mismatch(tmp_path: Path, written: str, fine: bool) -> None:
    body = f"{HEAD}  test:\n    bandwidth: {written}\n    runs:\n      - {{gbps: 1747.14}}\n"
    if fine:
        assert load(tmp_path, body).entries["test"].runs
    else:
        assert "the median of its runs (1)" in problems(tmp_path, body)[0]


@pytest.mark.parametrize(
    ("written", "fine"), [("85.7%", True), ("0.857", True), ("86%", True), ("85.9%", False), ("80%", False)]
)
def test_utilization_follows_from_a_known_peak(tmp_path: Path, written: str, fine: bool) -> None:
    text = (
        "schema: 1\ndevice: {name: X, peak: 2039 GB/s}\nentries:\n"
        f"  test:\n    bandwidth: 1747.1 GB/s\n    utilization: {written}\n"
    )
    if fine:
        assert load(tmp_path, text).entries["test"].utilization == pytest.approx(0.857, abs=0.004)
    else:
        found = problems(tmp_path, text)
        assert found[0].startswith(
            f"6: found utilization {written!r}, expected 85.68% (1747.1 of the device's peak 2039 GB/s): write"
        )


def test_a_huge_number_of_problems_ends_early(tmp_path: Path) -> None:
    found = problems(tmp_path, HEAD + "".join(f"  t{i}: {{bandwidth: x}}\n" for i in range(3000)))
    assert len(found) == 1001
    assert found[-1].endswith("stopped here: the file has 1000 problems or more")


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(
        BaselineError, match=r"none\.yaml: found no such file, expected a baseline: --bandwidth-update makes one"
    ):
        baseline_files.load(tmp_path / "none.yaml")
    with pytest.raises(BaselineError, match="found a folder, expected a baseline file"):
        baseline_files.load(tmp_path)
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(BaselineError, match="found a device or pipe, expected a baseline file"):
        baseline_files.load(tmp_path / "pipe.yaml")
    with pytest.raises(BaselineError, match="found a device or pipe, expected a baseline file"):
        baseline_files.load(Path("/dev/zero"))


def test_a_file_past_the_size_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse.yaml"
    with path.open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(BaselineError, match=r"found 1099511627776 bytes, expected at most 536870912"):
        baseline_files.load(path)


def test_the_documented_files_load(tmp_path: Path) -> None:
    documentation = Path(__file__).parents[2] / "docs" / "baselines.md"
    found = re.findall(r"```yaml\n(.*?)```", documentation.read_text(encoding="utf-8"), re.DOTALL)
    assert len(found) == 2
    for text in found:
        assert load(tmp_path, text).entries
