"""Provide what every HTML page needs: templates and their security policy, style sheet, colours, charts' parts.

All text goes through Jinja2's autoescape or, as JSON, into a script element that is never executed; scripts and styles
run by their hashes under a Content-Security-Policy that allows nothing else. Charts are Vega-Lite, drawn in the page by
Vega with its expression interpreter, so that the policy needs no ``unsafe-eval``.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import importlib.util
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.reports.summary import severity_in
from pytest_bandwidth.reports.text_safe import one_line
from pytest_bandwidth.storage.atomic import write_whole
from pytest_bandwidth.storage.own_folders import cache_folder, what_is_wrong
from pytest_bandwidth.storage.saved_run import RunDocument

if TYPE_CHECKING:
    from jinja2 import Environment

MOST_UNCOMPRESSED = 1_000_000
# Templates that pages extend or import.
_OF_ALL = ("base.html.j2", "grid.html.j2")


@dataclass(frozen=True, slots=True)
class Templates:
    """Render pages from the templates in a package's folder `templates`."""

    package: str

    def render(self, name: str, **values: Any) -> str:
        """Fill a template with values, which are escaped."""
        return str(_environment(self.package).get_template(name).render(**values))

    def page(
        self,
        name: str,
        *,
        columns: Sequence[Any] = (),
        script: str | None = None,
        library: str = "",
        data: Any = None,
        **values: Any,
    ) -> str:
        """Fill the template of a whole page, which extends base.html.j2.

        columns: of the results' table, whose grid the style sheet lays out. script: the page's own, which reads `data`
        and draws charts with `library`; None for a page without any.
        """
        style = _SHARED.render("page.css", columns=columns, light=LIGHT, dark=DARK)
        scripts = []
        if script is not None:
            scripts = [*filter(None, [library]), _text(_SHARED.package, "charts.js") + _text(self.package, script)]
        sources = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
        policy = (
            f"default-src 'none'; script-src {sources}; style-src 'sha256-{_digest(style)}'; "
            "base-uri 'none'; form-action 'none'"
        )
        # JSON for a script element that is never executed; nothing in it ends the element.
        embedded = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        if len(embedded) > MOST_UNCOMPRESSED:
            # The page's script detects it by the first character: Base64 has no bracket. Equal data give equal bytes.
            embedded = base64.b64encode(gzip.compress(embedded.encode("utf-8", "replace"), 6, mtime=0)).decode()
        embedded = embedded.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
        return self.render(name, policy=policy, style=style, scripts=scripts, data=embedded, **values)


_SHARED = Templates("pytest_bandwidth.reports")


def _digest(content: str) -> str:
    return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _text(package: str, name: str) -> str:
    return resources.files(package).joinpath(f"templates/{name}").read_text(encoding="utf-8")


@cache
def _environment(package: str) -> Environment:
    """Return a package's environment, cached with the templates that it has compiled."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # not before a page is asked for

    return Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(lambda name: _text(_SHARED.package if name in _OF_ALL else package, name)),
        auto_reload=False,
    )


# ---- colours, and the common parts of charts: frame, axes, marks by a result's end; the library that draws them ------

# Specs name colours by token (``$bad``); `resolved` puts a palette's colours in their place. Text colours reach 4.5 : 1
# on `surface` and on `raised`, marks 3 : 1 (WCAG 2.2, 1.4.3 and 1.4.11).

Spec = dict[str, Any]
Palette = Mapping[str, str]

# Each colour by token: on light, on dark.
_COLOURS = {
    "surface": ("#ffffff", "#14171b"),
    "raised": ("#f5f6f7", "#1d2126"),
    "line": ("#dcdfe3", "#31373e"),
    "control": ("#858d98", "#707a86"),
    "ink": ("#1b1f24", "#e5e8eb"),
    "muted": ("#58616c", "#a0a9b4"),
    "link": ("#1d5bb8", "#8ab6f5"),
    "bad": ("#b3261e", "#ff8a80"),
    "bad-soft": ("#fcecea", "#3a1f1e"),
    "warn": ("#8a5200", "#eab55c"),
    "warn-soft": ("#fbf1de", "#352a17"),
    "good": ("#17693c", "#79cf9d"),
    "good-soft": ("#e7f4ec", "#17301f"),
    "mark": ("#4a6f9c", "#8aaed8"),
    "mark-soft": ("#d3deeb", "#2b3a4c"),
    "other": ("#9a6a24", "#d8ab68"),
    "axis": ("#8b939d", "#727b86"),
    "grid": ("#eceef0", "#252a30"),
}
LIGHT: Palette = {token: light for token, (light, _) in _COLOURS.items()}
DARK: Palette = {token: dark for token, (_, dark) in _COLOURS.items()}
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
NAME_AT_MOST = 80
# How results end, in words; failures are drawn last, so that they lie on top.
ENDINGS = {"plain": "passed", "good": "improved", "warn": "not judged", "bad": "failed"}
# The page removes layers of this name where there is no room for their texts.
WIDE_ONLY = "wide-only"


def resolved(spec: Any, palette: Palette) -> Any:
    """Return the spec with every colour token replaced; data does not change, even if it looks like a token."""
    if isinstance(spec, str):
        return palette.get(spec[1:], spec) if spec.startswith("$") else spec
    if isinstance(spec, Mapping):
        return {k: v if k in ("data", "datasets") else resolved(v, palette) for k, v in spec.items()}
    if isinstance(spec, list):
        return [resolved(item, palette) for item in spec]
    return spec


CONFIG: Spec = {
    "background": "$surface",
    "font": FONT,
    "view": {"stroke": None},
    "title": {
        "anchor": "start",
        "fontSize": 13,
        "fontWeight": 600,
        "color": "$ink",
        "subtitleColor": "$muted",
        "subtitleFontSize": 11,
        "subtitlePadding": 5,
        "offset": 8,
    },
    "axis": {
        "labelColor": "$muted",
        "titleColor": "$muted",
        "titleFontWeight": "normal",
        "titleFontSize": 11,
        "labelFontSize": 11,
        "gridColor": "$grid",
        "domainColor": "$axis",
        "tickColor": "$axis",
        "tickSize": 4,
    },
    "axisY": {"domain": False, "ticks": False, "labelLimit": 260},
    "legend": {"labelColor": "$muted", "labelFontSize": 11, "symbolSize": 60, "offset": 2},
    "text": {"color": "$muted", "fontSize": 11},
}


def base(title: str, subtitle: str, description: str, height: int) -> Spec:
    """Return the part of a spec that all charts have in common. title: may be empty."""
    spec = {
        "$schema": SCHEMA,
        "title": {"text": title, "subtitle": subtitle} if subtitle else title,
        "description": description,
        "width": 560,
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "config": CONFIG,
    }
    return spec if title else {name: value for name, value in spec.items() if name != "title"}


def layer(mark: Spec, encoding: Spec, values: list[dict[str, Any]] | None = None, **more: Any) -> Spec:
    """Return a layer of a chart; without values it draws those of the whole chart."""
    return {**({} if values is None else {"data": {"values": values}}), **more, "mark": mark, "encoding": encoding}


def quantitative(field: str, scale: Spec, axis: Spec | None) -> Spec:
    return {"field": field, "type": "quantitative", "scale": scale, "axis": axis}


def looks(field: str, domain: Sequence[str], by_value: Sequence[str], legend: Spec | None) -> Spec:
    """Return colours or shapes of a field's values."""
    return {"field": field, "type": "nominal", "scale": {"domain": domain, "range": by_value}, "legend": legend}


def ending_encoding(present: set[str]) -> dict[str, Spec]:
    """Return colour and shape by how a result ended: never by colour alone. No legend where all ended alike."""
    domain = [ending for ending in ENDINGS.values() if ending in present]
    colours = {ending: f"${'mark' if severity == 'plain' else severity}" for severity, ending in ENDINGS.items()}
    shapes = {"passed": "circle", "improved": "triangle-up", "not judged": "diamond", "failed": "square"}
    legend = None if len(domain) == 1 else {"orient": "top", "title": None, "symbolOpacity": 1}
    return {
        channel: looks("ending", domain, [marks[ending] for ending in domain], legend)
        for channel, marks in (("color", colours), ("shape", shapes))
    }


def log_encoding(field: str, title: str, values: Iterable[float], label: str) -> Spec:
    """Return a logarithmic axis over positive values; `label`: a d3 number format."""
    known = list(values)
    low, high = min(known), max(known)
    low, high = low / 1.25, high * 1.25
    scale = {"type": "log", "domain": [low, high], "nice": False}
    return quantitative(field, scale, {"title": title, "tickCount": 6, "format": label})


def identity(run: RunDocument, index: int, outcome: Outcome) -> dict[str, Any]:
    """Return the result that a point shows, by its index in the document, and how it ended."""
    return {"row": index, "ending": ENDINGS[severity_in(outcome, strict=run.strict)]}


def test_name(outcome: Outcome) -> str:
    """Return the test without its file, with its label."""
    name = outcome.nodeid.partition("::")[2] or outcome.nodeid
    return one_line(f"{name} @ {outcome.label}" if outcome.label else name, NAME_AT_MOST)


def gravest_last(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return points in the order of drawing: failed results are on top."""
    order = list(ENDINGS.values())
    return sorted(points, key=lambda p: order.index(p["ending"]))


def tooltip(*fields: str) -> list[Spec]:
    return [{"field": field, "type": "nominal"} for field in fields]


# The page's script fills it from the table.
TIP_OF_ROW = tooltip("row")


def unique(names: Sequence[str]) -> list[str]:
    """Return the names, with a number after each repeated one: an axis would draw equal names as one."""
    seen: dict[str, int] = {}
    distinct = []
    for name in names:
        seen[name] = count = seen.get(name, 0) + 1
        distinct.append(name if count == 1 else f"{name} ({count})")
    return distinct


# ---- the library that draws them: Vega, Vega-Lite and Vega-Embed as one script, offline by vl-convert ----------------

# vl-convert takes one to two seconds to make it, so the plugin keeps a copy in the user's cache folder, by version.
MISSING = "charts need vl-convert-python: pip install 'pytest-bandwidth[report]'"
_SNIPPET = "window.vegaEmbed = vegaEmbed;"


def charts_available() -> bool:
    """Return whether vl-convert is installed; it is imported only when it is needed."""
    return importlib.util.find_spec("vl_convert") is not None


@cache
def javascript_bundle() -> str:
    """Return the script that sets `window.vegaEmbed`, safe in a script element: no ``</script``, no ``<!--``."""
    folder = cache_folder()
    file = folder / f"vega-{version('vl-convert-python')}.js"
    with suppress(OSError):
        folder.parent.mkdir(parents=True, exist_ok=True)
    is_own = what_is_wrong(folder) is None  # pages run the copy: no other user may have written it
    if is_own:
        with suppress(OSError, UnicodeDecodeError):
            if known := file.read_text(encoding="utf-8"):
                return known
    import vl_convert

    made: str = vl_convert.javascript_bundle(_SNIPPET)
    bundle = made.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    if is_own:
        with suppress(OSError):  # the next page takes a second longer
            write_whole(file, bundle.encode(), mode=0o600)
    return bundle
