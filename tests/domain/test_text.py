"""Invisible characters, for reading and for printing; values quoted in messages; addresses, which show no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_bandwidth.domain.text import (
    DOCUMENTATION,
    INVISIBLE,
    Address,
    escaped,
    is_address,
    masked,
    short_commit,
    shown,
)


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


# An address, and how it is shown.
SHOWN = [
    ("s3://bucket/history/", "s3://bucket/history"),
    ("s3://bucket/team@home/history", "s3://bucket/team@home/history"),
    ("s3://AKIAKEY:se/cr+et@bucket/history", "s3://***@bucket/history"),
    ("https://token@host/history", "https://***@host/history"),
    ("abfs://container@account.dfs.core.windows.net/h", "abfs://container@account.dfs.core.windows.net/h"),
    ("gs://bucket/h?token=hunter2&x=1", "gs://bucket/h?***"),
    ("gs://bucket/h#hunter2", "gs://bucket/h#***"),
    ("file:///", "file://"),
]


def test_an_address_is_no_path():
    assert all(map(is_address, ["s3://bucket/history", "gs://b", "file:///x", "a+b.c-1://x"]))
    paths = ["history", "/s3://b", "s3:/b", "C:\\x", "://x", "1://x", "simplecache::s3://b"]
    assert not any(map(is_address, paths))


@pytest.mark.parametrize(("url", "expected"), SHOWN)
def test_what_is_shown_has_no_secret(url, expected):
    address = Address(url)
    assert str(address) == repr(address) == f"{address}" == expected
    assert str(address / "run.parquet") == f"{expected}/run.parquet"
    assert (address / "run.parquet").name == "run.parquet"


def test_secrets_go_out_of_any_text_around_an_address():
    text = "pytest '--bandwidth-history=s3://key:secret@bucket/h' s3://b/h?sig=secret tests/test_a.py::test[a@b]"
    assert masked(text) == "pytest '--bandwidth-history=s3://***@bucket/h' s3://b/h?*** tests/test_a.py::test[a@b]"


@pytest.mark.parametrize(
    "told", ["no host secret%40word", "secret@word is wrong", "user:secret%40word", "sig is hunter2"]
)
def test_secrets_go_out_of_what_a_library_says(told):
    address = Address("sftp://user:secret%40word@host/h?sig=hunter2")
    said = address.without_secrets(told)
    assert "***" in said
    assert not any(secret in said for secret in ("secret", "word", "hunter2"))

    # A short one does not eat up words.
    assert Address("sftp://me@host/h").without_secrets("some message") == "some message"


def test_an_address_joins_as_an_absolute_path_does_and_equals_its_like():
    address = Address("s3://key:secret@bucket/history")
    assert Path("/folder") / address is address
    assert Address("s3://b/h") == Address("s3://b/h/")
    assert len({Address("s3://b/h"), Address("s3://b/h/"), Address("s3://b/i")}) == 2
    assert Address("s3://b/h") not in ("s3://b/h", Address("s3://b/h") / "x")


def test_a_heading_of_our_pages_is_no_secret():
    link = f"{DOCUMENTATION}/troubleshooting.html#floor"
    assert masked(f"no (help: {link})") == f"no (help: {link})"
    assert masked(f"{link}?sig=secret") == f"{DOCUMENTATION}/troubleshooting.html#***"
