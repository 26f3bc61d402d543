"""What twice the work, sampled in the same rounds, says of a measurement's regime."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from pytest_bandwidth.domain.measurement import Finding, Measurement
from pytest_bandwidth.domain.roofline import OVERHEAD_FOUND, doubled_batch, growth_sentence

# A finding of this code tells what a doubled batch took where that is no evidence of overhead.
GROWTH_FOUND = "doubled-batch"


def with_doubled_batch(measurement: Measurement) -> Measurement:
    """The measurement with a finding of what its rounds' one `beside`, twice the work, took; unchanged without one."""
    rounds, seconds = measurement.rounds, measurement.seconds
    if not seconds or not rounds.interleaved or not rounds.interleaved[0]:
        return measurement
    doubled = median(rounds.interleaved[0])
    code = GROWTH_FOUND if doubled_batch(seconds, doubled) is None else OVERHEAD_FOUND
    finding = Finding(code, growth_sentence(seconds, doubled))
    return replace(measurement, rounds=replace(rounds, interleaved=()), findings=(*measurement.findings, finding))
