"""Write the HTML pages: one self-contained file each."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_bandwidth.domain.values import path
from pytest_bandwidth.hooks import hookimpl
from pytest_bandwidth.options.settings import Options, option
from pytest_bandwidth.registry import later

if TYPE_CHECKING:
    from pytest_bandwidth.hooks import Format


class HtmlOptions(Options):
    """Hold the option."""

    html: Path | None = option("FILE", "write a page with tables and charts", path, writes=True)


@hookimpl
def pytest_bandwidth_options() -> type:
    """Add `--bandwidth-html`."""
    return HtmlOptions


@hookimpl
def pytest_bandwidth_formats() -> list[Format]:
    """Add the HTML summary, and its charts as SVG and PNG."""
    from pytest_bandwidth.hooks import Format
    from pytest_bandwidth.storage.atomic import HTML

    page, chart = later("features.html.page:render_html"), later("features.html.charts:render_chart")
    return [
        Format("html", page, HTML.begins, "bandwidth_html", further_endings=HTML.endings[1:], in_folder=True),
        Format("svg", partial(chart, format="svg"), r"<svg ", draws=True),
        Format("png", partial(chart, format="png"), r"\x89PNG", draws=True),
    ]
