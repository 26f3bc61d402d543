"""Without a browser its tests skip, except where the job says that there is one."""

from __future__ import annotations

import pytest
from chromium import BROWSER_TESTS, end_without


def test_what_is_missing_skips_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(BROWSER_TESTS, raising=False)
    with pytest.raises(pytest.skip.Exception, match="no Chromium is here"):
        end_without("no Chromium is here")


def test_where_a_browser_is_required_they_fail_with_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BROWSER_TESTS, "required")
    with pytest.raises(pytest.fail.Exception, match="no Chromium is here"):
        end_without("no Chromium is here")
