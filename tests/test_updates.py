"""An update takes fresh runs for the same state of the code, or starts afresh, by the rule that tests are judged by."""

import math
from pathlib import Path

import pytest

from pytest_bandwidth import storage
from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.measurement import DeviceIdentity, Measurement
from pytest_bandwidth.domain.outcome import outcome_of
from pytest_bandwidth.domain.reference import PRIOR_SPREAD
from pytest_bandwidth.domain.samples import Rounds
from pytest_bandwidth.domain.student_t import t_quantile
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.verdict import Status, Verdict
from pytest_bandwidth.settings import Settings
from pytest_bandwidth.updates import evidence_of, update_baseline

KEY = "tests/test_a.py::test_copy"
BYTES = 10**9


def update(folder: Path, kind: str, gbps: float) -> Entry:
    """What the file holds after one more run at so many GB/s."""
    identity = DeviceIdentity(kind, "A device", 2**34, "1")
    rounds = Rounds(kernel_seconds=(BYTES / gbps / 1e9,), host_kernel_seconds=(BYTES / gbps / 1e9,))
    measurement = Measurement(None, Traffic(BYTES // 2, BYTES // 2), identity, "clock", rounds)
    row = outcome_of(KEY, KEY, measurement, Verdict(Status.UPDATED, "update", "this run writes the entry"))
    settings = Settings(baseline=folder / "b.yaml", update=True, runs=1)
    update_baseline(settings, identity, [evidence_of(identity, [row], [], None)])
    return storage.load(folder / "b.yaml").entries[KEY]


@pytest.mark.parametrize(("kind", "runs"), [("cpu", 2), ("scripted", 2), ("cuda", 1)])
def test_what_runs_on_the_host_is_updated_with_the_hosts_prior(tmp_path, kind, runs):
    # One run and another, five degrees of freedom: between what a GPU's prior explains and what a host's does.
    explained = [t_quantile(0.999, 5) * PRIOR_SPREAD[prior] * math.sqrt(2) for prior in ("gbps", "gbps:host")]
    assert update(tmp_path, kind, 100.0).judged_on == "gbps"
    assert len(update(tmp_path, kind, 100.0 * math.exp(-sum(explained) / 2)).runs) == runs
