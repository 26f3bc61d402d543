"""Hostile files end in one error, soon and in little memory, and nothing in them is executed."""

import tracemalloc

import pytest

from pytest_bandwidth import baseline as baseline_files
from pytest_bandwidth.baseline import parse
from pytest_bandwidth.domain.errors import BaselineError

HEAD = "schema: 2\ntests:\n"


def files(size):
    """Files of about so many characters, each with too much of one thing."""

    def repeated(piece):
        return piece * (size // len(piece))

    def numbered(template):
        return "".join(template.format(number) for number in range(size // (len(template) + 4)))

    return {
        "aliases that explode": "schema: 2\na0: &a0 [x, x]\n"
        + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 30)) + HEAD,
        "flow scalars": HEAD + "  a: [" + repeated("a,") + "]\n",
        "unknown keys": HEAD + "  a: {" + numbered("{:x}: b, ") + "z: z}\n",
        "bad entries": HEAD + numbered("  {:x}: {{bandwidth: x}}\n"),
        "one-line entries": HEAD + numbered("  {:x}:\n    bandwidth: 17.1 GB/s\n"),
        "settings": HEAD + "  a:\n    bandwidth: 1.0 GB/s\n    settings: {" + numbered("a{}: b, ") + "z: z}\n",
        "deep lists": HEAD + "  a: " + "[" * size,
        "one scalar": HEAD + "  a: " + "x" * size,
        "one key": HEAD + "  " + "x" * size + ":\n    bandwidth: 1.0 GB/s\n",
        "keys of colons": HEAD + repeated("  a" + ":" * 1000 + "\n"),
        "tags": HEAD + numbered("  a{}: !!python/object/apply:os._exit [3]\n"),
        "duplicates": HEAD + repeated("  a: 1\n"),
        "comments": HEAD + "  a:\n    bandwidth: 1.0 GB/s\n" + repeated("  #\n"),
        "zero bytes": "\0" * size,
        "a long head": repeated("a: 1\n") + HEAD,
        "a key that holds a tab": HEAD + "  a:\n    bandwidth: 1 GB/s\n    settings: {ecc\t on}\n" + "#" * size,
    }  # fmt: skip


SMALL = files(2**16)
VALID = {"one-line entries", "settings", "comments"}


def load(path):
    """One of: loaded, refused. Anything but a BaselineError fails the test."""
    try:
        baseline_files.load(path)
    except BaselineError as error:
        refusal = error
    else:
        return "loaded"
    lines = str(refusal).splitlines()
    assert len(lines) == len(refusal.problems)
    assert all(line.startswith(f"{path}:") and len(line) < 1000 and line.isprintable() for line in lines)
    return "refused"


@pytest.mark.parametrize("name", SMALL)
def test_a_hostile_file_ends_in_an_error_and_little_memory(tmp_path, name):
    path = tmp_path / "hostile.yaml"
    path.write_text(SMALL[name])
    tracemalloc.start()
    try:
        outcome = load(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert outcome == ("loaded" if name in VALID else "refused")
    assert peak < 380 * len(SMALL[name]) + 2e6  # in proportion


def test_the_limit_on_items_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(parse, "MAX_EVENTS", 1000)
    path = tmp_path / "a.yaml"
    path.write_text(HEAD + "  a: [" + "a," * 1000 + "]\n")
    with pytest.raises(BaselineError, match="yaml:3: found more than 1000 YAML items, expected fewer"):
        baseline_files.load(path)


SEED_FILE = """\
schema: 2
device: {name: NVIDIA A100-SXM4-80GB, memory_gib: 80, peak: 2039 GB/s}
tolerance: 5%
tests:
  tests/test_s.py::test_copy[x-1] @ label:
    bandwidth: 1747.1 GB/s
    of_peak: 85.7 %
    of_probe: 99.6 %
    bytes: {read: 671088640, written: 335544320}
    settings: {mig: off, ecc: on}
    runs: 5 ± 0.12 %
  # by hand
  "quoted: key": {bandwidth: 1.6 TiB/s, note: 'it''s'}
  tests/test_t.py::test:
    counts: {load_sectors: 12}
    xfail: >-
      known
      slow
"""
