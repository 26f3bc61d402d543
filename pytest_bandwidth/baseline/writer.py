"""Turn baseline values into the text that updates write: by `schema`'s tables, a line a field."""

from __future__ import annotations

from collections.abc import Collection

from pytest_bandwidth.baseline.plain_text import flow, key_line, word
from pytest_bandwidth.baseline.schema import DEVICE_FIELDS, ENTRY_FIELDS, FRACTION, is_measured
from pytest_bandwidth.domain.baseline import SCHEMA, Baseline, BaselineDevice, Entry, settled

TESTS = "tests:\n"


def render(baseline: Baseline) -> str:
    """Render a whole file. Raises UsageError for text that no baseline may hold."""
    peak = baseline.device.peak_gbps if baseline.device else None
    entries = (render_entry(settled(entry, peak)) for entry in baseline.entries.values())
    return render_header(baseline.device, baseline.tolerance) + "".join(entries)


def render_header(device: BaselineDevice | None, tolerance: float | None = None) -> str:
    """Render the lines before the first entry."""
    lines = [f"schema: {SCHEMA}\n"]
    if device is not None:
        lines.append(render_device(device))
    if tolerance is not None:
        lines.append(f"tolerance: {FRACTION.write(tolerance)}\n")
    return "".join([*lines, TESTS])


def render_device(device: BaselineDevice) -> str:
    """Render the device's line."""
    values = {"name": device.name, "memory_gib": device.memory_gib, "kind": device.kind, "peak": device.peak_gbps}
    texts = {name: DEVICE_FIELDS[name].text(value) for name, value in values.items() if value is not None}
    return f"device: {flow(texts)}\n"


def render_entry(entry: Entry, written: Collection[str] = ()) -> str:
    """Render an entry's lines, indented by two. The entry is taken as it is: see `domain.baseline.settled`."""
    fields = entry_fields(entry, written).items()
    return key_line(entry.key) + "".join(f"    {word(name)}: {text}\n" for name, text in fields)


def entry_fields(entry: Entry, written: Collection[str] = ()) -> dict[str, str]:
    """Return the fields by name, each value as YAML text that fits one line, in the order of the schema.

    What the runs' file holds of a measured entry is left out, but for fields that people have written.
    """
    measured = is_measured(entry)
    texts: dict[str, str] = {}
    for name, one in ENTRY_FIELDS.items():
        if one.of is None or (measured and one.recorded and name not in written):
            continue
        value = one.of(entry)
        if value is not None and value != {}:
            texts[name] = one.text(value)
    return texts | {name: word(text) for name, text in entry.extra.items()}
