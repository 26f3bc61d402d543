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
        "flow keys": HEAD + "  a: {" + numbered("{:x},") + "}\n",
        "entries of nothing": HEAD + numbered("  {:x}:\n"),
        "bad entries": HEAD + numbered("  {:x}: {{bandwidth: x}}\n"),
        "one-line entries": HEAD + numbered("  {:x}:\n    bandwidth: 17.1 GB/s\n"),
        "canonical and not": HEAD + numbered("  {0:x}:\n    bandwidth: 17.1 GB/s\n  z{0:x}: {{bandwidth: 1}}\n"),
        "an open quote at the end": HEAD + numbered("  {:x}:\n    bandwidth: 17.1 GB/s\n") + '  z: "',
        "settings": HEAD + "  a:\n    bandwidth: 1.0 GB/s\n    settings: {" + numbered("a{}: b, ") + "z: z}\n",
        "deep lists": HEAD + "  a: " + "[" * size,
        "deep blocks": "\n".join(" " * depth + "a:" for depth in range(1400)),
        "dashes": repeated("- "),
        "one scalar": HEAD + "  a: " + "x" * size,
        "one key": HEAD + "  " + "x" * size + ":\n    bandwidth: 1.0 GB/s\n",
        "one key of words": HEAD + "  " + repeated("a ") + "b:\n    bandwidth: 1.0 GB/s\n",
        "keys of colons": HEAD + repeated("  a" + ":" * 1000 + "\n"),
        "escapes": HEAD + '  a: "' + repeated("\\u0041") + '"\n',
        "lines of a text": HEAD + "  a: |\n" + repeated("    c\n"),
        "documents": repeated("---\n"),
        "tags": HEAD + numbered("  a{}: !!python/object/apply:os._exit [3]\n"),
        "merge keys": HEAD + "  a: &a {bandwidth: 5}\n" + numbered("  b{}: {{<<: *a}}\n"),
        "duplicates": HEAD + repeated("  a: 1\n"),
        "blank lines": HEAD + "\n" * size,
        "comments": HEAD + "  a:\n    bandwidth: 1.0 GB/s\n" + repeated("  #\n"),
        "zero bytes": "\0" * size,
        "wide characters": HEAD + "  \U0001f600: {bandwidth: 5}\n# " + "x" * size,
        "a long head": repeated("a: 1\n") + HEAD,
        "numbers": HEAD + "  a: {bandwidth: " + "9" * size + "}\n",
        "a key that holds a tab": HEAD + "  a:\n    bandwidth: 1 GB/s\n    settings: {ecc\t on}\n" + "#" * size,
    }  # fmt: skip


SMALL = files(2**16)
VALID = {"one-line entries", "canonical and not", "settings", "blank lines", "comments", "wide characters"}


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
PIECES = [
    "*a", "&a ", "!!int ", "!", "|\n", ">\n", "? ", ": ", ":", "- ", "{", "}", "[", "]", ",", '"', "'", "#",
    " #", "\n", "\n\n", "\t", "  ", "    ", "---\n", "...\n", "%YAML 9.9\n", "<<: ", "nan", ".inf", "1e999",
    "-1", "99999999999999999999", "\\", "\\x00", "\\u202e", "\x00", "\x1b", "\x85", "\u2028", "\ufeff",
    "\ud800", "\xe9", "\U0001f600", "\r", "\r\n", "schema: 3\n", "tests:\n", "  a: 1\n", "=", "~", "@", "`",
    "%",
]  # fmt: skip


def mutated(chance):
    """The seed file with some pieces put in, cut out, swapped or repeated; sometimes as broken bytes."""
    text = SEED_FILE
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8, 30))):
        at, end = sorted(chance.randrange(len(text) + 1) for _ in range(2))
        kind = chance.randrange(6)
        if kind == 0:
            text = text[:at] + text[end:]
        elif kind == 1:
            text = text[:at] + text[at:end] * chance.choice((2, 3, 50)) + text[end:]
        elif kind == 2:
            lines = text.splitlines(keepends=True)
            chance.shuffle(lines)
            text = "".join(lines)
        else:
            text = (
                text[:at]
                + chance.choice(PIECES) * chance.choice((1, 1, 1, 9))
                + text[at + chance.choice((0, 0, 1, 3)) :]
            )
        text = text[:20_000] or SEED_FILE
    codec = chance.choice(("utf-8",) * 8 + ("utf-16", "latin-1", "cp037"))
    data = text.encode(codec, "surrogatepass" if codec.startswith("utf") else "replace")
    if chance.random() < 0.1:
        broken = bytearray(data)
        for _ in range(chance.randrange(1, 5)):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        data = bytes(broken)
    return data
