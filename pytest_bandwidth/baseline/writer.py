"""Turn baseline values into the canonical text that updates write; `fast_reader` recognises the same form."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import lru_cache

from pytest_bandwidth.domain.baseline import SCHEMA, Baseline, BaselineDevice, Entry, Run, settled
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import INVISIBLE, shown

# What stands unquoted: a subset of YAML's plain scalars on which block and flow context, YAML 1.1 and 1.2 agree.
# One blank or some colons only ever between two such characters, so neither ": " nor " #" can arise.
# Bounded, because a regular expression remembers every turn of a loop.
WORD_PATTERN = r"[A-Za-z0-9](?:(?: |:{1,4})?[\w./+@%()~^*=<>$;'-]){0,500}"
KEY_PATTERN = r"[A-Za-z0-9_/.](?:(?: |:{1,4})?[\w./+@%()~^*=<>$;'&!?,\[\]-]){0,900}"
WORD = re.compile(WORD_PATTERN, re.ASCII)
KEY = re.compile(KEY_PATTERN, re.ASCII)
# A plain key may take 1024 characters (YAML 1.2, 7.4.2); a longer one needs the "? key" form.
MAX_SIMPLE_KEY = 1000
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
_TO_ESCAPE = re.compile(r'["\\\n\t]')


def render(baseline: Baseline) -> str:
    """Render a whole file in canonical form. Raises UsageError for text that no baseline may hold."""
    peak = baseline.device.peak_gbps if baseline.device else None
    return render_header(baseline.device, baseline.tolerance) + "".join(
        render_entry(settled(entry, peak)) for entry in baseline.entries.values()
    )


def render_header(device: BaselineDevice | None, tolerance: float | None = None) -> str:
    """Render the lines before the first entry."""
    lines = [f"schema: {SCHEMA}\n"]
    if device is not None:
        lines.append(render_device(device))
    if tolerance is not None:
        lines.append(f"tolerance: {_percent(tolerance)}\n")
    return "".join([*lines, "entries:\n"])


def render_device(device: BaselineDevice) -> str:
    """Render the device's line."""
    fields = {"name": word(device.name)}
    if device.memory_gib is not None:
        fields["memory_gib"] = str(device.memory_gib)
    if device.kind is not None:
        fields["kind"] = word(device.kind)
    if device.peak_gbps is not None:
        fields["peak"] = f"{figure(device.peak_gbps)} GB/s"
    return f"device: {_flow(fields)}\n"


def render_entry(entry: Entry) -> str:
    """Render an entry's lines, indented by two. The entry is taken as it is: see `domain.baseline.settled`."""
    lines = [_key_line(entry.key)]
    lines += [f"    {word(name)}: {text}\n" for name, text in entry_fields(entry).items()]
    if entry.runs:
        lines.append("    runs:\n")
        lines += [f"      - {render_run(run)}\n" for run in entry.runs]
    return "".join(lines)


def is_written_alike(one: Entry, other: Entry) -> bool:
    """Return whether two entries are the same lines; runs that are equal, as nearly all are, are not rendered."""
    return (
        one.key == other.key
        and entry_fields(one) == entry_fields(other)
        and (one.runs == other.runs or list(map(render_run, one.runs)) == list(map(render_run, other.runs)))
    )


def entry_fields(entry: Entry) -> dict[str, str]:
    """Return every field but `runs` by name, each value as YAML text that fits one line, in canonical order."""
    found: dict[str, str | None] = {
        "bandwidth": None if entry.gbps is None else f"{figure(entry.gbps)} GB/s",
        "utilization": None if entry.utilization is None else _percent(entry.utilization, 3),
        "tolerance": None if entry.tolerance is None else _percent(entry.tolerance),
        "judged_on": entry.judged_on,
        "bytes_read": _integer(entry.bytes_read),
        "bytes_written": _integer(entry.bytes_written),
        "method": _optional(entry.method),
        "xfail": _optional(entry.xfail),
        "note": _optional(entry.note),
        "resources": _flow({name: str(value) for name, value in entry.resources.items()}) if entry.resources else None,
        "settings": _flow({name: word(text) for name, text in entry.settings.items()}) if entry.settings else None,
        "counts": _flow({name: str(value) for name, value in entry.counts.items()}) if entry.counts else None,
        "code": _flow(dict(entry.code)) if entry.code else None,
        "anchor": None if entry.anchor is None else render_run(entry.anchor),
        **{name: word(text) for name, text in entry.extra.items()},
    }
    return {name: text for name, text in found.items() if text is not None}


def runs_kept(was: Sequence[str], shall: Sequence[str]) -> int:
    """Count the written runs that stay when an entry's become others: the newest of the old, which begin the new."""
    return next(n for n in range(min(len(was), len(shall)), -1, -1) if was[len(was) - n :] == shall[:n])


def render_run(run: Run) -> str:
    """Render one run as a mapping on one line."""
    parts = [f"gbps: {figure(run.gbps)}"]
    if run.probe_gbps is not None:
        parts.append(f"probe_gbps: {figure(run.probe_gbps)}")
    if run.relative is not None:
        parts.append(f"relative: {figure(run.relative)}")
    if run.samples is not None:
        parts.append(f"samples: {run.samples}")
    if run.dram_read is not None:
        parts.append(f"dram_read: {run.dram_read}")
    if run.dram_written is not None:
        parts.append(f"dram_written: {run.dram_written}")
    if run.gpu is not None:
        parts.append(f"gpu: {word(run.gpu)}")
    if run.commit is not None:
        parts.append(f"commit: {word(run.commit)}")
    if run.dirty:
        parts.append("dirty: true")
    if run.at is not None:
        parts.append(f"at: {word(run.at)}")
    parts += [f"{word(name)}: {word(text)}" for name, text in run.extra.items()]
    return "{" + ", ".join(parts) + "}"


def shift(text: str, by: int) -> str:
    """Move every line that is not blank right by so many blanks, or left where that many are there."""
    if by == 0:
        return text
    if by > 0:
        return "".join(" " * by + line if line.strip() else line for line in text.splitlines(keepends=True))
    blanks = " " * -by
    return "".join(line.removeprefix(blanks) for line in text.splitlines(keepends=True))


def figure(value: float) -> str:
    """Render six significant digits (noise is a thousand times that), a decimal point, no exponent: 0.996066."""
    text = f"{value:.6g}"
    if "e" not in text:
        return text if "." in text else f"{text}.0"
    if not 1e-9 <= value < 1e12:
        return f"{value:.5e}"
    text = format(Decimal(f"{value:.5e}"), "f")
    whole, _, decimals = text.partition(".")
    return f"{whole}.{decimals.rstrip('0') or '0'}"


def _percent(fraction: float, significant: int = 6) -> str:
    """Render a fraction as a percentage, trailing zeros cut: 5%, 85.7%, 0.25%."""
    if fraction < 1e-8:
        return f"{fraction * 100:.{significant - 1}e}%" if fraction else "0%"
    text = format(Decimal(f"{fraction * 100:.{significant - 1}e}"), "f")
    return (text.rstrip("0").rstrip(".") if "." in text else text) + "%"


def _integer(value: int | None) -> str | None:
    return None if value is None else str(value)


def _optional(text: str | None) -> str | None:
    return None if text is None else word(text)


def _flow(fields: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{word(name)}: {text}" for name, text in fields.items()) + "}"


@lru_cache(maxsize=4096)
def word(text: str) -> str:
    """Render text as a YAML scalar that fits one line. Raises UsageError for text that no baseline may hold."""
    return text if WORD.fullmatch(text) else _quoted(text)


def _quoted(text: str) -> str:
    if match := INVISIBLE.search(text):
        raise UsageError(
            f"found the character U+{ord(match[0]):04X} in {shown(text)}, expected visible text in a baseline"
        )
    return '"' + _TO_ESCAPE.sub(lambda match: _ESCAPES[match[0]], text) + '"'


def _key_line(key: str) -> str:
    text = key if KEY.fullmatch(key) else _quoted(key)
    return f"  {text}:\n" if len(text) <= MAX_SIMPLE_KEY else f"  ? {text}\n  :\n"
