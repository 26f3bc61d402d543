"""One entry from the runs of several devices of one model."""

import pytest

from pytest_bandwidth.domain.baseline import Entry, Run
from pytest_bandwidth.domain.errors import BaselineError
from pytest_bandwidth.judging.stored import reference_of
from pytest_bandwidth.outcomes.entries import joined, merged


def entry(gpu, *gbps, **fields):
    runs = tuple(Run(value, 100.0, value / 100, gpu=gpu) for value in gbps)
    return Entry("t", **{"judged_on": "relative", "bytes_read": 8, "method": "events", **fields}, runs=runs)


def test_runs_are_taken_in_turn():
    found = joined([entry("A", 1.0, 2.0, 3.0), entry("B", 4.0), entry("C", 5.0, 6.0)], on_host=False)
    assert [run.gpu + str(int(run.gbps)) for run in found.runs] == ["A1", "B4", "C5", "A2", "C6", "A3"]


def test_the_newest_that_are_kept_are_of_every_device():
    of_all = joined([entry(gpu, *[90.0] * 5) for gpu in "ABCDEFGH"], on_host=False)
    found = merged(None, of_all, 0.05, None)
    older = merged(found, of_all, 0.05, reference_of(found, "relative", on_host=False))
    assert {run.gpu for run in older.runs} == set("ABCDEFGH")


def test_the_figure_is_chosen_from_the_runs_of_all():
    steady = [Run(90.0, 100.0 + n, 90.0 / (100.0 + n)) for n in (0, 30, 0, 30, 15)]
    of_devices = [Entry("t", judged_on="relative", runs=(run,)) for run in steady]
    assert joined(of_devices[:1], on_host=False).judged_on == "relative"
    assert joined(of_devices, on_host=False).judged_on == "gbps"


@pytest.mark.parametrize(
    "fields", [{"bytes_read": 9}, {"method": "clock"}, {"settings": {"ecc": "off"}}, {"counts": {"loads": 1}}]
)
def test_devices_that_measured_something_else_do_not_share_an_entry(fields):
    with pytest.raises(BaselineError, match=f"found {next(iter(fields))} .* expected one"):
        joined([entry("A", 1.0), entry("B", 1.0, **fields)], on_host=False)
