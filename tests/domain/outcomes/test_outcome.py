"""A row of a run holds its baseline's entry as plain data, of its own."""

from dataclasses import asdict

from pytest_bandwidth.domain.baseline import Entry, Run
from pytest_bandwidth.domain.outcomes.flatten import _entry_plain

RUN = Run(5.0, 6.0, 0.9, 3, "gpu", "abc", "2026-11-21T04:00:00Z", {"driver": "580"})


def test_an_entry_is_plain_data_in_the_order_of_its_fields():
    counted = Entry("k", method="ptx", counts={"load_sectors": 8}, settings={"arch": "sm_90"}, extra={"pattern": "x"})
    for entry in (counted, Entry("k", 5.0, anchor=RUN, runs=(RUN, RUN), resources={"registers": 10}, line=7)):
        expected = asdict(entry)
        del expected["line"], expected["extra"]
        plain = _entry_plain(entry)
        assert list(plain.items()) == list(expected.items())
        plain["counts"]["load_sectors"] = 0
        assert entry.counts.get("load_sectors", 0) in (0, 8)
    assert counted.counts == {"load_sectors": 8}
