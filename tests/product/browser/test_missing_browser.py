"""Without a browser its tests skip, except where the job says that there is one."""

import pytest
from chromium import BROWSER_TESTS, end_without


@pytest.mark.parametrize(
    ("promised", "ends"), [("", pytest.skip.Exception), ("required", pytest.fail.Exception)], ids=["skips", "fails"]
)
def test_what_is_missing_ends_the_tests_in_the_same_words(monkeypatch, promised, ends):
    monkeypatch.setenv(BROWSER_TESTS, promised)
    with pytest.raises(ends, match="no Chromium is here"):
        end_without("no Chromium is here")
