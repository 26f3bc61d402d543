"""Addresses are told from paths, join as absolute paths do, and show no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_bandwidth.domain.address import DOCUMENTATION, Address, is_address, masked

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
