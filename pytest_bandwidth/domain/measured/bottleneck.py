"""Say in a sentence what keeps a kernel from its bytes: counted or modelled accesses, spills, and re-read bytes."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_bandwidth.domain.measured.measurement import Measurement

# A finding of this code on a measurement is its bottleneck: what a suite's own model of an access pattern says.
BOTTLENECK_FOUND = "bottleneck"
# Less than this factor over what is needed is not worth a sentence.
WORTH_TELLING = 1.1
# Asking for bytes twice is what softmax and reductions do by nature, and what caches are for.
READ_AGAIN = 2.5


def bottleneck_of(measurement: Measurement) -> str | None:
    """Return the sentence, or None where nothing that is known wastes bandwidth. The surest evidence first."""
    for finding in measurement.findings:
        if finding.code == BOTTLENECK_FOUND:
            return finding.text
    return _counted(measurement.detail) or _spilled(measurement) or _asked_again(measurement)


def access_sentence(verb: str, pattern: str, factor: float, unit: str = "sectors") -> str | None:
    """Say ``strided reads ask for 8.0× the sectors they need``; None below a factor that is worth telling.

    verb: ``reads`` or ``writes``; pattern: a word for their order, or nothing.
    """
    if factor < WORTH_TELLING:
        return None
    return f"{pattern} {verb} ask for {_times(factor)} the {unit} they need".lstrip()


def _counted(detail: Mapping[str, object]) -> str | None:
    """Name those of the counted loads and stores that waste more sectors."""
    wasted: list[tuple[float, str]] = []
    for verb, kind in (("reads", "loads"), ("writes", "stores")):
        access = detail.get(kind)
        if not isinstance(access, Mapping) or not access.get("coalescing"):
            continue
        pattern = str(access.get("pattern") or "").partition(" ")[0]
        said = "" if pattern in ("coalesced", "none", "broadcast") else pattern
        sentence = access_sentence(verb, said, 1 / access["coalescing"])
        if sentence is not None:
            wasted.append((access["sectors"] * (1 - access["coalescing"]), sentence))
    return max(wasted)[1] if wasted else None


def _spilled(measurement: Measurement) -> str | None:
    resources = measurement.resources
    if resources is None or not resources.local_bytes:
        return None
    return (
        f"{resources.local_bytes} B of local memory a thread (spilled registers, indexed arrays) go through the caches"
    )


def _asked_again(measurement: Measurement) -> str | None:
    """Compare the bytes that all loads ask for, by the operation's model, with the distinct ones."""
    traffic = measurement.traffic
    if traffic.requested_read is None or not traffic.bytes_read:
        return None
    factor = traffic.requested_read / traffic.bytes_read
    if factor < READ_AGAIN:
        return None
    return f"reads ask for {_times(factor)} the distinct bytes: what caches do not serve comes from memory again"


def _times(factor: float) -> str:
    return f"{factor:.1f}×" if factor < 100 else f"{factor:,.0f}×"
