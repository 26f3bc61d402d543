"""The chart library's kept copy: made once, believed only where nobody else could have written it."""

import os

import pytest

from pytest_bandwidth.reports import pages

vl_convert = pytest.importorskip("vl_convert", reason="vl-convert-python is not installed")


@pytest.fixture(scope="module")
def bundle():
    """What vl-convert makes, which takes it seconds each time."""
    return vl_convert.javascript_bundle(pages._SNIPPET)


@pytest.fixture
def made(bundle, monkeypatch, tmp_path):
    """Snippets that vl-convert was asked to bundle; the cache folder is empty."""
    asked = []
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda snippet: asked.append(snippet) or bundle)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return asked


def fresh():
    """The bundle as a new process would get it."""
    return pages.javascript_bundle.__wrapped__()


def kept(tmp_path):
    return next((tmp_path / "pytest-bandwidth").glob("vega-*.js"))


def test_the_bundle_is_made_once_and_then_read(made, tmp_path):
    first = fresh()
    assert fresh() == first == kept(tmp_path).read_text(encoding="utf-8")
    assert made == [pages._SNIPPET]
    assert "vegaEmbed" in first
    assert "</script" not in first
    assert "<!--" not in first


def test_a_copy_that_others_can_write_is_not_believed(made, tmp_path):
    fresh()
    copy = kept(tmp_path)
    copy.write_text("window.pwned=1", encoding="utf-8")
    os.chmod(copy.parent, 0o777)
    assert "pwned" not in fresh()
    assert len(made) == 2


@pytest.mark.parametrize("content", [b"", b"\xff\xfe"])
def test_a_broken_copy_is_made_again(made, tmp_path, content):
    first = fresh()
    kept(tmp_path).write_bytes(content)
    assert fresh() == first
    assert len(made) == 2


def test_a_cache_that_cannot_be_written_is_done_without(made, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert "vegaEmbed" in fresh()
    assert len(made) == 1
