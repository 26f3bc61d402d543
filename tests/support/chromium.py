"""Start Chromium for the browser tests, open a page and note all that it complains about; skip without one."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

import pytest

from pytest_bandwidth.reports.pages import charts_available

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

# CI's jobs set it to "required": there, a browser that is missing is a failure.
BROWSER_TESTS = "BROWSER_TESTS"
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
DESKTOP, PHONE = (1280, 900), (390, 844)
_DRAWN = "() => [...document.querySelectorAll('figure[data-chart]')].every((f) => f.querySelector('.marks'))"


@dataclass
class Opened:
    """Hold a page, and everything that it complained about or asked for."""

    page: Page
    loads: int = 1
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    def names(self) -> list[str]:
        """Return the names of the tests in sight of the filter, from top to bottom."""
        found: list[str] = self.page.locator("tbody.rows > tr:not([hidden]) > td:nth-child(2) .test").all_inner_texts()
        return found

    def column(self, key: str) -> list[str]:
        """Return a column's texts by its sort key, from top to bottom."""
        keys = self.page.locator("th button[data-sort]").evaluate_all("all => all.map((b) => b.dataset.sort)")
        cells = self.page.locator(f"tbody.rows > tr:not([hidden], .panel) > td:nth-child({keys.index(key) + 1})")
        found: list[str] = cells.evaluate_all("all => all.map((cell) => cell.textContent)")
        return found

    def wait_in_window(self, row: Locator, above: int = 0) -> None:
        """Wait until the row begins in the window, or so many pixels above it: the browser scrolls in its own time."""
        self.page.wait_for_function(
            "([row, above]) => { const { y } = row.getBoundingClientRect(); return -above <= y && y < innerHeight }",
            arg=[row.element_handle(), above],
        )

    def sort_by(self, key: str) -> None:
        self.page.locator(f"th button[data-sort={key}]").click()


def scroll_through(page: Page) -> None:
    """Bring all charts into the window, and wait until they are drawn, where they can be."""
    for figure in page.locator("figure[data-chart]").all():
        figure.scroll_into_view_if_needed()
    if charts_available():
        page.wait_for_function(_DRAWN)


def end_without(missing: str) -> NoReturn:
    """Skip, saying what is missing; fail where the tests were promised a browser."""
    if os.environ.get(BROWSER_TESTS) == "required":
        pytest.fail(missing, pytrace=False)
    pytest.skip(missing)
