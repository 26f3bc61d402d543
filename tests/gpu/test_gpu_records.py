"""CUPTI's records, by cupti-python on a GPU and by its stand-in on the emulated card."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("nvidia")
# In a process of its own: CUPTI records until that ends.
PROGRAM = Path(__file__).parents[1] / "card" / "programs" / "recorded.py"


@pytest.fixture(scope="module")
def told() -> Any:
    pytest.importorskip("cupti.cupti")
    done = subprocess.run([sys.executable, PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("work", ["one", "three", "copy", "fill"])
def test_records_leave_out_what_events_hold_of_a_launch(told: Any, work: str) -> None:
    events, cupti = told["events"][work], told["cupti"][work]
    assert (events["method"], cupti["method"]) == ("events+block", "cupti+block")
    assert 0 < cupti["seconds"] < events["seconds"]


def test_three_kernels_take_as_long_as_they_and_their_gaps(told: Any) -> None:
    assert told["cupti"]["three"]["seconds"] > 2 * told["cupti"]["one"]["seconds"]


def test_work_on_an_unknown_stream_is_timed_by_records_alone(told: Any) -> None:
    assert "another stream" in told["events"]["elsewhere"]["error"]
    assert told["cupti"]["elsewhere"]["method"] == "cupti"
    assert told["cupti"]["elsewhere"]["seconds"] == pytest.approx(told["cupti"]["one"]["seconds"], rel=0.3)
    assert "CUPTI recorded nothing" in told["cupti"]["nothing"]["error"]
