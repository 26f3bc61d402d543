"""What the browser tests share: how Chromium is started, and a page with everything that it complained about."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

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


@dataclass
class Opened:
    """A page, and everything that it complained about or asked for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    def names(self) -> list[str]:
        """Names of the tests in sight of the filter, from top to bottom."""
        found: list[str] = self.page.locator("tbody.rows > tr:not([hidden]) > td:nth-child(2) .test").all_inner_texts()
        return found

    def column(self, key: str) -> list[str]:
        """A column's texts by its sort key, from top to bottom."""
        keys = self.page.locator("th button[data-sort]").evaluate_all("all => all.map((b) => b.dataset.sort)")
        cells = self.page.locator(f"tbody.rows > tr:not([hidden], .panel) > td:nth-child({keys.index(key) + 1})")
        found: list[str] = cells.evaluate_all("all => all.map((cell) => cell.textContent)")
        return found

    def sort_by(self, key: str) -> None:
        self.page.locator(f"th button[data-sort={key}]").click()


Open = Callable[..., Opened]
