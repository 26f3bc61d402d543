"""Plug the HTML summary and the charts in: the option, the formats."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pytest_bandwidth.hooks import hookimpl

if TYPE_CHECKING:
    from pytest_bandwidth.hooks import Format


@hookimpl
def pytest_bandwidth_options() -> type:
    """Add `--bandwidth-html`."""
    from pytest_bandwidth.features.html.options import HtmlOptions

    return HtmlOptions


@hookimpl
def pytest_bandwidth_formats() -> list[Format]:
    """Add the HTML summary, and its charts as SVG and PNG."""
    from pytest_bandwidth.hooks import Format
    from pytest_bandwidth.storage.atomic import HTML

    option, further = "bandwidth_html", HTML.endings[1:]
    return [
        Format("html", _page, HTML.begins, option, further_endings=further, in_folder=True),
        Format("svg", partial(_chart, "svg"), r"<svg ", draws=True),
        Format("png", partial(_chart, "png"), r"\x89PNG", draws=True),
    ]


def _page(document: Mapping[str, Any]) -> str:
    from pytest_bandwidth.features.html.page import render_html

    return render_html(document)


def _chart(kind: Literal["svg", "png"], document: Mapping[str, Any], chart: str | None) -> bytes:
    from pytest_bandwidth.features.html.charts import render_chart

    return render_chart(document, chart, kind)
