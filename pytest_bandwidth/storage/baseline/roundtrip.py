"""Edits of hand-formed YAML: comments, order and quoting stay, through ruamel.yaml's round trip.

Every scalar stays text, so that a commit ``0123456`` or a tolerance ``5e-2`` is written back as it stood.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode
from ruamel.yaml.resolver import VersionedResolver

from pytest_bandwidth.domain.baseline import BaselineDevice, Change, Entry, Run
from pytest_bandwidth.storage.baseline.writer import (
    entry_fields,
    render_device,
    render_entry,
    render_run,
    runs_kept,
    shift,
)

_TAGS = {
    ScalarNode: "tag:yaml.org,2002:str",
    SequenceNode: "tag:yaml.org,2002:seq",
    MappingNode: "tag:yaml.org,2002:map",
}


class _TextResolver(VersionedResolver):
    """Takes every untagged scalar for text, in reading and in writing."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        del value, implicit  # by which YAML would tell numbers and dates from text
        from ruamel.yaml.tag import Tag

        return Tag(suffix=_TAGS[kind])


def edit_block(text: str, old: Entry, new: Entry, indent: int) -> str:
    """The block of one entry, edited where old and new differ. `text` is indented by `indent`, and so is the result."""
    yaml = _yaml()
    root = yaml.load(shift(text, -indent))
    _edit_entry(root[old.key], old, new)
    return shift(_dump(yaml, root), indent)


def edit_whole(text: str, device: BaselineDevice | None, changes: Iterable[Change]) -> str:
    """A whole file, edited entry by entry; `device` is added where the file names none."""
    yaml = _yaml()
    yaml.explicit_start = text.startswith("---")
    root = yaml.load(text)
    if device is not None and "device" not in root:
        root.insert(1, "device", _yaml().load(render_device(device))["device"])
    if not isinstance(root.get("entries"), CommentedMap):
        root["entries"] = CommentedMap()
    entries = root["entries"]
    for change in changes:
        if change.after is None:
            del entries[change.key]
        elif change.before is None:
            entries[change.key] = _nodes(change.after)
        else:
            _edit_entry(entries[change.key], change.before, change.after)
    return _dump(yaml, root)


def _yaml() -> YAML:
    yaml = YAML(typ="rt")
    yaml.Resolver = _TextResolver
    yaml.preserve_quotes = True
    yaml.width = 1 << 20
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def _dump(yaml: YAML, root: Any) -> str:
    stream = io.StringIO()
    yaml.dump(root, stream)
    return stream.getvalue()


def _nodes(entry: Entry) -> Any:
    return _yaml().load(shift(render_entry(entry), -2))[entry.key]


def _edit_entry(node: Any, old: Entry, new: Entry) -> None:
    before, after = entry_fields(old), entry_fields(new)
    nodes = _nodes(new)
    if new.runs:
        # A run per line needs the entry in block style.
        node.fa.set_block_style()
    for name, text in after.items():
        if name not in node or before.get(name) != text:
            node[name] = nodes[name]
    for name in before:
        if name not in after and name in node:
            del node[name]
    if not new.runs:
        node.pop("runs", None)
    elif "runs" not in node:
        node["runs"] = nodes["runs"]
    elif old.runs != new.runs:
        _edit_runs(node, old.runs, new.runs, nodes["runs"])


def _edit_runs(node: Mapping[str, Any], old: tuple[Run, ...], new: tuple[Run, ...], nodes: CommentedSeq) -> None:
    """Keeps the lines of runs that stay: they are the newest of the old ones, and new ones follow."""
    kept = runs_kept([render_run(run) for run in old], [render_run(run) for run in new])
    runs = node["runs"]
    for _ in range(len(old) - kept):
        del runs[0]
    for item in runs:
        # A run per line, like the new ones; ruamel 0.19 loses a line end in lists of both styles with a comment above.
        if not item.ca.items:
            item.fa.set_flow_style()
    for item in nodes[kept:]:
        runs.append(item)
