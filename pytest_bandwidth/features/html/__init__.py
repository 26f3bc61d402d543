"""Write the HTML pages: one self-contained file each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pytest_bandwidth.domain.values import path
from pytest_bandwidth.hooks import hookimpl
from pytest_bandwidth.options.settings import Options, option

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

    return [
        Format("html", _page, HTML.begins, "bandwidth_html", further_endings=HTML.endings[1:], in_folder=True),
        Format("svg", partial(_chart, "svg"), r"<svg ", draws=True),
        Format("png", partial(_chart, "png"), r"\x89PNG", draws=True),
    ]


def _page(document: Mapping[str, Any]) -> str:
    from pytest_bandwidth.features.html.page import render_html

    return render_html(document)


def _chart(kind: Literal["svg", "png"], document: Mapping[str, Any], chart: str | None) -> bytes:
    from pytest_bandwidth.features.html.charts import render_chart

    return render_chart(document, chart, kind)
