"""A saved run is checked once, and figures that nothing real has are refused by name."""

import json
import tracemalloc

import pytest
from run_documents import outcome, run_of, save

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.storage.saved_run import load_run, parsed, read_document


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda d: d["results"][0].update(gbps=-5), "results[0].gbps is -5, expected 0 or more"),
        (lambda d: d["results"][0]["samples"].append(-1e-3), "results[0].samples[8] is -0.001, expected 0 or more"),
        (
            lambda d: d["results"][0].update(counts={"loads": -1}),
            "results[0].counts['loads'] is -1, expected 0 or more",
        ),
        (
            lambda d: d["results"][0]["verdict"].update(spread=-0.1),
            "results[0].verdict.spread is -0.1, expected 0 or more",
        ),
        (lambda d: d["device"]["peak"].update(gbps=-1), "the document.device.peak.gbps is -1, expected 0 or more"),
    ],
)
def test_impossible_figures_are_refused(tmp_path, change, named):
    path = save(tmp_path / "run.json", run_of(outcome("tests/test_a.py::test_a", 800.0)))
    document = json.loads(path.read_text())
    assert len(load_run(path)[1]) == 1
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError) as caught:
        load_run(path)
    assert str(caught.value) == f"{path}: {named}"


@pytest.mark.parametrize("facts", [{"changes": [["x", 1, 10**400]]}, {"a": {"b": [10**400]}}])
def test_a_fact_that_is_no_figure_is_refused_and_a_page_goes_without(tmp_path, facts):
    document = json.loads(json.dumps(run_of(outcome("tests/test_a.py::test_a", 800.0))))
    document["results"][0]["verdict"]["facts"] = facts
    with pytest.raises(UsageError):
        load_run(save(tmp_path / "run.json", document))
    assert len(read_document(document).outcomes) == 1


def test_a_gain_and_a_devices_facts_may_be_below_zero(tmp_path):
    document = json.loads(json.dumps(run_of(outcome("tests/test_a.py::test_a", 800.0))))
    document["results"][0]["verdict"] |= {"drop": -0.25, "low": -0.5, "high": -0.125}
    document["device"]["facts"]["numa_node"] = -1
    assert len(load_run(save(tmp_path / "run.json", document))[1]) == 1


@pytest.mark.parametrize("value", ["[]", "{}", '{"a":0}', "0", '"ab"', "1e1", "[[[]]]"])
def test_more_values_than_a_run_has_take_no_memory(value):
    data = f'{{"results":[{",".join([value] * (2**22 // (len(value) + 1)))}]}}'.encode()
    tracemalloc.start()
    try:
        with pytest.raises(UsageError, match=r"run\.json: found [\d,]+ values, expected at most [\d,]+ in"):
            parsed(data, "run.json")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1e6
