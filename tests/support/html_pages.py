"""Read a page as a browser would: its elements, its text, and the data of its script."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any


class Page(HTMLParser):
    """Hold elements with their attributes, and the content of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[tuple[str, str]] = []
        self.text: list[str] = []
        self._inside: str | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag if tag in ("script", "style") else self._inside
        if tag in ("script", "style"):
            self.raw.append((tag, ""))

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside:
            self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside:
            tag, content = self.raw.pop()
            self.raw.append((tag, content + data))
        else:
            self.text.append(data)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def visible(self) -> str:
        return " ".join(" ".join(self.text).split())

    @property
    def data(self) -> dict[str, Any]:
        """Return what the page's script reads."""
        attributes = [attributes for tag, attributes in self.elements if tag in ("script", "style")]
        held = zip(attributes, self.raw, strict=True)
        return next(json.loads(content) for of, (_, content) in held if of.get("id") == "data")
