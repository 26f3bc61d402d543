"""Fill templates with autoescape, under a policy that lets nothing run but the page's own scripts.

All text goes through Jinja2's autoescape or, as JSON, into a script element that is never executed; scripts and styles
run by their hashes under a Content-Security-Policy that allows nothing else. Charts are Vega-Lite, drawn in the page by
Vega with its expression interpreter, so that the policy needs no ``unsafe-eval``.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from pytest_bandwidth.reports.pages.charts import DARK, LIGHT

if TYPE_CHECKING:
    from jinja2 import Environment

MOST_UNCOMPRESSED = 1_000_000
# What pages extend, and what they import.
_OF_ALL = ("base.html.j2", "grid.html.j2")


@dataclass(frozen=True, slots=True)
class Templates:
    """Give a package's page what lies in its folder `templates`."""

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
            # The page's script sees that by the first character: Base64 has no bracket. Equal data give equal bytes.
            embedded = base64.b64encode(gzip.compress(embedded.encode("utf-8", "replace"), 6, mtime=0)).decode()
        embedded = embedded.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
        return self.render(name, policy=policy, style=style, scripts=scripts, data=embedded, **values)


_SHARED = Templates("pytest_bandwidth.reports.pages")


def _digest(content: str) -> str:
    return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _text(package: str, name: str) -> str:
    return resources.files(package).joinpath(f"templates/{name}").read_text(encoding="utf-8")


@cache
def _environment(package: str) -> Environment:
    """Keep the templates that it has compiled."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # not before a page is asked for

    return Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(lambda name: _text(_SHARED.package if name in _OF_ALL else package, name)),
        auto_reload=False,
    )
