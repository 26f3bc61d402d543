"""One class of invisible characters, for reading and for printing; values quoted in messages."""

from __future__ import annotations

import pytest

from pytest_bandwidth.domain.text import INVISIBLE, escaped, short_commit, shown


@pytest.mark.parametrize(
    "text",
    [
        *("a\x00", "a\x1b[31m", "a\rb", "a\x85b", "a\u00adb", "a\u034fb", "a\u061cb", "a\u180eb", "a\u200bb",
          "a\u200eb"),
        *("a\u202eb", "a\u2028b", "a\u2060b", "a\u2066b", "a\u3164b", "a\ufeffb", "a\uffff", "a\ud800", "a\U000e0041"),
        *("a\u200db", "\u200cb", "a\ufe0f", "1\ufe0f"),
    ],
)  # fmt: skip
def test_invisible_characters_are_found_and_escaped(text: str) -> None:
    assert INVISIBLE.search(text)
    assert not INVISIBLE.search(escaped(text))
    assert not INVISIBLE.search(shown(text))


@pytest.mark.parametrize("text", ["", "plain\ttext\n", "café", "⚠\ufe0f", "👩\u200d💻", "می\u200cخ", "1\ufe0f\u20e3"])
def test_what_shapes_the_letters_beside_it_is_visible(text: str) -> None:
    assert escaped(text) == text


def test_a_value_is_shown_on_one_line() -> None:
    assert shown("short") == "'short'"
    assert shown("x" * 100) == f"'{'x' * 60}…'"
    assert shown(b"x" * 100) == f"b'{'x' * 58}…"
    assert shown({"a": "b\n"}) == "{'a': 'b\\n'}"
    assert shown([0] * 100) == "a list"
    assert shown(dict.fromkeys(range(100))) == "a mapping"
    assert shown(10**5000) == "<int>"


@pytest.mark.parametrize(
    ("commit", "short"),
    [("0123456789abcdef" * 4, "0123456789"), ("a" * 40, "a" * 10), ("a" * 39, "a" * 39), ("v1", "v1")],
)
def test_a_full_hash_is_shown_short(commit, short):
    assert short_commit(commit) == short
