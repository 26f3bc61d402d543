"""What a baseline file may say, and the one line for each thing that it may not."""

import os
from pathlib import Path

import pytest

from pytest_bandwidth import baseline as baseline_files
from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.errors import BaselineError

HEAD = "schema: 2\ntests:\n"


def load(tmp_path, text):
    path = tmp_path / "baseline.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return baseline_files.load(path)


def problems(tmp_path, text):
    with pytest.raises(BaselineError) as caught:
        load(tmp_path, text)
    lines = str(caught.value).splitlines()
    assert len(lines) == len(caught.value.problems)
    assert all(line.startswith(f"{tmp_path}/baseline.yaml:") for line in lines)
    return [line.removeprefix(f"{tmp_path}/baseline.yaml:") for line in lines]


def entry(tmp_path, body):
    return load(tmp_path, f"{HEAD}  test:\n{body}").entries["test"]


def test_every_field(tmp_path):
    found = entry(
        tmp_path,
        "    bandwidth: 2 TB/s\n    of_peak: 103%\n    of_probe: 0.99\n    tolerance: 0.02\n    judged_on: relative\n"
        "    bytes: {read: 1, written: 0}\n"
        "    method: events\n    xfail: known slow\n    note: |\n      two\n      lines\n"
        "    resources: {registers: 16}\n    settings: {mig: off}\n"
        f"    counts: {{load_sectors: 8}}\n    code: {{ptx: {'a' * 32}}}\n    later: kept\n",
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
        resources={"registers": 16},
        settings={"mig": "off"},
        counts={"load_sectors": 8},
        code={"ptx": "a" * 32},
        extra={"later": "kept"},
    )
    assert entry(tmp_path, "    counts: {load_sectors: 8}\n").gbps is None, "counts alone are an entry"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("blanks", [" ", "    "])
def test_other_indentation_and_line_ends(tmp_path, blanks, end):
    text = f"{HEAD}{blanks}a::b:\n{blanks * 2}bandwidth: 5\n\n{blanks}c::d: {{bandwidth: 6}}\ntolerance: 7%\n"
    baseline = load(tmp_path, text.replace("\n", end))
    found = {key: (entry.gbps, entry.line) for key, entry in baseline.entries.items()}
    assert found == {"a::b": (5, 3), "c::d": (6, 6)}
    assert baseline.tolerance == pytest.approx(0.07)


def test_all_problems_at_once_by_line_until_there_are_too_many(tmp_path):
    found = problems(
        tmp_path,
        "schema: 2\ndevice: {name: X, memory_gib: many}\ntolerance: 5\ntests:\n  a:\n    bandwith: 3\n"
        "  b:\n    bandwidth: 5 GX/s\n"
        "    runs: many\n  c:\n    bandwidth: 1.0 GB/s\n"
        "  c:\n    bandwidth: 1.0 GB/s\n",
    )
    assert [line.split(":")[0] for line in found] == ["2", "3", "6", "8", "9", "12"]
    assert found[2] == "6: found the unknown key 'bandwith' in entry, expected bandwidth"
    assert found[1].startswith("3: tolerance: found '5', expected a fraction below 1 or a percentage such as 5%")
    assert found[5] == "12: found 'c' twice (first on line 10), expected it once"
    found = problems(tmp_path, HEAD + "".join(f"  t{i}: {{bandwidth: x}}\n" for i in range(3000)))
    assert len(found) == 1001
    assert found[-1].endswith("stopped here: the file has 1000 problems or more")


# Below a bandwidth, on the fifth line.
BAD_FIELDS = {
    "tolerance: 120%": "tolerance: found '120%', expected at least 0 % and below 100 %",
    "judged_on: speed": "judged_on: found 'speed', expected relative or gbps",
    f"bytes: {{read: {2**63}}}": f"bytes.read: found '{2**63}', expected a whole",
    "xfail:": "xfail: found nothing, expected some text",
    "xfail: |\n      a\n      b": "xfail: found 'a\\nb', expected text of one line",
    "runs: some": "runs: found 'some', expected the number of runs, such as 5 ± 0.12",
    "bytes: {reads: 5}": "found the unknown key 'reads' in bytes, expected read",
    "settings: off": "settings: found the text 'off', expected a mapping",
    "code: {ptx: xyz}": "code.ptx: found 'xyz', expected a hash of 32 digits 0-9a-f",
    '"a\\nb": 5': "found the key 'a\\nb', expected one line of at most 4096 characters",
}


@pytest.mark.parametrize("field", BAD_FIELDS)
def test_one_problem_of_a_field(tmp_path, field):
    (found,) = problems(tmp_path, f"{HEAD}  test:\n    bandwidth: 5\n    {field}\n")
    assert found.startswith(f"5: {BAD_FIELDS[field]}")


@pytest.mark.parametrize(
    ("body", "line", "message"),
    [
        ("    bandwidth: nan\n", 4, "bandwidth: found 'nan', expected a number"),
        ("    tolerance: 3%\n", 3, "found neither bandwidth nor counts, expected one of them"),
        ("    {bandwidth: 5, bandwidth: 6}\n", 4, "found 'bandwidth' twice (first on line 4), expected it once"),
        ("    bandwidth: !!python/name:os.system 5\n", 4, "found the tag 'tag:yaml.org,2002:python/name:os.system'"),
        (
            "    note: !<tag:yaml.org,2002:python/object/new:os.mkdir> a\n    bandwidth: 5\n",
            4,
            "found the tag 'tag:yaml.org,2002:py",
        ),
        ("    bandwidth: &x 5\n", 4, "found the anchor &x, expected values written out"),
        ('    note: "\\e[31m"\n    bandwidth: 5\n', 4, "found the character U+001B, expected visible text"),
        ('    note: "a\\u2060b"\n    bandwidth: 5\n', 4, "found the character U+2060, expected visible text"),
        (f"    note: {'x' * 9000}\n    bandwidth: 5\n", 4, "found 9000 characters, expected at most 8192"),
        ("    ? [a]\n    : 5\n    bandwidth: 5\n", 4, "found a list or mapping as a key, expected text"),
        ("    bandwidth: 5\n    runs:\n      - {gbps: 5}\n", 6, "runs: found a list, expected a single value"),
    ],
)
def test_one_problem_of_an_entry(tmp_path, body, line, message):
    (found,) = problems(tmp_path, f"{HEAD}  test:\n{body}")
    assert found.startswith(f"{line}: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1: found an empty file, expected a baseline beginning with schema: 2"),
        ("- a\n", "1: found a list, expected a baseline"),
        ("tests: {}\n", "1: found no schema, expected schema: 2 as the first line"),
        ("schema: 1\n", "1: found schema 1, expected 2: move the file away and write a new one"),
        ("# ours\nschema: 3\ntests: [new, layout]\n", "2: found schema 3, expected 2: written by a newer"),
        ("schema: 2\ntests: 5\n", "2: tests: found no mapping"),
        ("schema: 2\n---\nschema: 2\n", "2: found a second YAML document, expected one"),
        ("%YAML 1.1\n---\nschema: 2\n", "1: found a YAML directive, expected none"),
        (f"{HEAD}  a: {{bandwidth: 5\n", "found text that is not YAML (while parsing a flow mapping"),
        (f"{HEAD}  a:\n\tbandwidth: 5\n", "4: found text that is not YAML"),
        (f"{HEAD}<<<<<<< HEAD\n  a: {{bandwidth: 5}}\n=======\n", "3: found the merge conflict marker"),
        (f"{HEAD}  a: " + "[" * 50, "3: found values nested deeper than 6"),
        (b"\x89PNG\r\n\x1a\n\0\0", "2: found the byte 0x1a, expected text: this is not a YAML file"),
        (b"schema: 2\ntests:\n  a: \xff\n", "3: found the byte 0xff, expected UTF-8 text"),
        ("schema: 2\n".encode("utf-16"), "1: found a byte order mark of UTF-16, expected plain UTF-8"),
        ("\ufeffschema: 2\n".encode(), "1: found a byte order mark of UTF-8, expected plain UTF-8"),
        ("schema: 2\ntests:\r\n", "1: found line ends of two kinds"),
        ("schema: 2\rtests:\r", "1: found a lone carriage return"),
        ("schema: 2\n# \u202e\n", "2: found the character U+202E, expected visible text"),
        ("schema: 2\ndevice: A100\n", "2: device: found the text 'A100', expected a mapping"),
        ("schema: 2\ndevice: {memory_gib: 80}\n", "2: device: found no name"),
        ("schema: 2\ntolerence: 5%\n", "2: found the unknown key 'tolerence' in file, expected tolerance"),
    ],
)  # fmt: skip
def test_one_problem_of_a_file(tmp_path, text, message):
    (found,) = problems(tmp_path, text)
    assert message in found


def recorded(tmp_path, *gbps):
    """Write a line of runs of `test` for each figure."""
    lines = (
        f'{{"schema":2,"id":"{number:016x}-a3ec2f.0","tests":{{"test":{{"gbps":{one}}}}}}}\n'
        for number, one in enumerate(gbps)
    )
    (tmp_path / "baseline.runs.jsonl").write_text("".join(lines))


@pytest.mark.parametrize(
    ("written", "fine"),
    [
        *(("1747.1 GB/s", True), ("1.75 TB/s", True), ("1738.41 GB/s", True)),
        *(("1738.40 GB/s", False), ("1755.88 GB/s", False), ("2 TB/s", False)),
    ],
)
def test_rounding_of_a_bandwidth_is_no_mismatch(tmp_path, written, fine):
    recorded(tmp_path, 1747.14)
    body = f"{HEAD}  test:\n    bandwidth: {written}\n    runs: 1\n"
    if fine:
        assert load(tmp_path, body).entries["test"].gbps == 1747.14
    else:
        how = "write one of these, or remove the line `runs` to set it by hand"
        expected = f"4: found bandwidth {written!r}, expected 1747.14 to 1747.14 GB/s, as in its runs: {how}"
        assert problems(tmp_path, body) == [expected]


def test_what_is_no_file_or_past_the_size_limit_is_not_read(tmp_path):
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
    path = tmp_path / "sparse.yaml"
    with path.open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(BaselineError, match=r"found 1099511627776 bytes, expected at most 536870912"):
        baseline_files.load(path)
