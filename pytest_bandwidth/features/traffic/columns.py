"""Show the counts of a traffic device from a result's `detail`: as columns, as facts, and by source line."""

from __future__ import annotations

from collections.abc import Callable

from pytest_bandwidth.domain.units import format_bytes, format_seconds
from pytest_bandwidth.outcomes.outcome import Nested, Outcome, mapping, mappings, number, text, whole
from pytest_bandwidth.reports.columns import Column, SmallTable, Value, percent
from pytest_bandwidth.reports.text_safe import one_line, scalar_text

KINDS = (("load", "loads"), ("store", "stores"), ("atomic", "atomics"))
ROWS_AT_MOST, HEADINGS_AT_MOST, ARRAYS_AT_MOST, CARDS_AT_MOST = 100, 12, 20, 10


def accesses_of(detail: Nested) -> list[tuple[str, Nested]]:
    """Return each kind of access that occurs, with its counts."""
    return [(kind, access) for kind, name in KINDS if (access := mapping(detail, name)) and access.get("requests") != 0]


def _sectors(outcome: Outcome) -> str | None:
    """Format sectors per request of loads and stores, and of atomics if there are any: 4.0 + 4.0."""
    loads, stores, atomics = (number(mapping(outcome.detail, name), "sectors_per_request") for _, name in KINDS)
    found = [loads, stores] if atomics is None else [loads, stores, atomics]
    if set(found) == {None}:
        return None
    return " + ".join("–" if value is None else f"{value:.1f}" for value in found)


def _most_sectors(outcome: Outcome) -> float | None:
    known = [number(access, "sectors_per_request") for _, access in accesses_of(outcome.detail)]
    return max((sectors for sectors in known if sectors is not None), default=None)


def _patterns(outcome: Outcome) -> str | None:
    """Return the most common access pattern of loads, of stores and of atomics; one name where they agree."""
    found = [text(mapping(outcome.detail, name), "pattern") for _, name in KINDS]
    return " / ".join(dict.fromkeys(name for name in found if name and name != "none")) or None


def _count(name: str) -> Column:
    return Column(name, name, lambda outcome: whole(outcome.counts.get(name)), outputs=("csv",))


def _fact(name: str, heading: str, value: Callable[[Outcome], Value], show: Callable[[float], str] = str) -> Column:
    return Column(name, heading, value, show, outputs=("details",))


def _blocks(outcome: Outcome) -> str | None:
    blocks, run = number(outcome.detail, "blocks"), number(outcome.detail, "blocks_run")
    return None if blocks is None or run is None else f"{run:.0f} of {blocks:.0f}"


def _floors(outcome: Outcome) -> str | None:
    floors = mapping(outcome.detail, "modelled_floor_seconds")
    known = [(card, number(floors, card)) for card in list(floors)[:CARDS_AT_MOST]]
    return ", ".join(f"{card} {format_seconds(seconds)}" for card, seconds in known if seconds is not None) or None


def _launches(outcome: Outcome) -> SmallTable | None:
    found, numbers = mappings(outcome.detail, "launches")[:ROWS_AT_MOST], ("blocks", "times", *_COUNTS)
    rows = [
        [
            one_line(text(launch, "kernel"), 60),
            *(whole(launch.get(name)) for name in numbers),
            *(format_bytes(number(launch, f"distinct_bytes_{verb}") or 0) for verb in _VERBS),
        ]
        for launch in found
    ]
    head = ("kernel", *(name.replace("_", " ") for name in numbers), *_VERBS)
    shown = sum(whole(launch.get("times")) or 1 for launch in found)
    more = (whole(outcome.detail.get("launch_count")) or shown) - shown
    return SmallTable("Launches", head, rows, more) if rows else None


def _arrays(outcome: Outcome) -> SmallTable | None:
    found = mappings(outcome.detail, "arrays")
    roles = ("role",) if any(text(array, "role") for array in found) else ()
    rows = [
        (
            one_line(text(array, "name"), 60),
            *(one_line(text(array, role), 20) for role in roles),
            *(format_bytes(number(array, f"bytes_{verb}") or 0) for verb in _VERBS),
        )
        for array in found[:ARRAYS_AT_MOST]
    ]
    return SmallTable("Arrays", ("array", *roles, *_VERBS), rows, len(found) - len(rows)) if rows else None


_COUNTS = ("load_sectors", "store_sectors", "atomic_sectors", "bank_conflicts")
_VERBS = ("read", "written")


def _accesses(outcome: Outcome) -> SmallTable | None:
    """List all counts of each access, by source line where lines are known."""
    found: list[tuple[str, Nested]] = []
    for line in mappings(outcome.detail, "lines"):
        place, source = f"{text(line, 'file')}:{line.get('line')}", text(line, "text")
        of_line = {"place": place, "source": source} if source else {"place": place}
        accesses = ((kind, mapping(line, name)) for kind, name in KINDS)
        found += [(kind, {**of_line, **access}) for kind, access in accesses if access.get("requests")]
    found = found or accesses_of(outcome.detail)
    head = list(dict.fromkeys(str(key) for _, access in found for key in access))[:HEADINGS_AT_MOST]
    rows = [[kind, *(_cell(access.get(name)) for name in head)] for kind, access in found[:ROWS_AT_MOST]]
    headings = ("access", *(one_line(name.replace("_", " "), 40) for name in head))
    return SmallTable("Memory accesses", headings, rows, len(found) - len(rows)) if rows else None


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else scalar_text(value)


COLUMNS = (
    *(_count(name) for name in _COUNTS[:3]),
    Column(
        "sectors_per_request",
        "sectors/request",
        _sectors,
        hint="32-byte sectors that a load or store asks for per request: loads + stores (+ atomics)",
        sort=_most_sectors,
        narrow="stay",
    ),
    Column(
        "access",
        "access",
        _patterns,
        hint="how neighbouring threads' addresses lie in most requests: loads / stores / atomics",
        sort=_most_sectors,
        usual="coalesced",
    ),
    _fact("kernel", "kernel", lambda outcome: text(outcome.detail, "kernel") or None),
    _fact("blocks_run", "blocks run", _blocks),
    _fact(
        "thread_instructions",
        "thread instructions",
        lambda outcome: number(outcome.detail, "thread_instructions"),
        lambda count: f"{count:.4g}",
    ),
    _fact("lane_occupancy", "lane occupancy", lambda outcome: number(outcome.detail, "lane_occupancy"), percent),
    _fact("modelled_floor", "modelled floor", _floors),
    _fact("launches", "launches", _launches),
    _fact("arrays", "arrays", _arrays),
    _fact("accesses", "accesses", _accesses),
)
