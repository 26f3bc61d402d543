"""The probe alone in a fresh process, and what is said where it cannot run."""

import pytest
from scripted import ScriptedDevice, dropped, repeat

from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.session.fresh.probe import probe_alone, probe_gbps

TRAFFIC = Traffic(500_000, 500_000)  # 1 GB/s takes 1 ms
SLOW, FAST = 1e-3, 0.7e-3


def gbps(*steps, **tolerates):
    device = ScriptedDevice(probe_script=repeat(*steps), overhead_seconds=0.01)
    return probe_gbps(device, device.probe(TRAFFIC), 3, **tolerates)


@pytest.mark.parametrize("spoilt", [dropped("throttled", FAST), 0.0])
def test_samples_that_do_not_count_are_no_part_of_the_figure(spoilt):
    assert gbps(SLOW, spoilt, spoilt) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("spoilt", "why"), [(dropped("throttled", FAST, text="too hot"), "too hot"), (0.0, "it took no time")]
)
def test_without_a_sample_that_counts_the_error_says_why(spoilt, why):
    expected = rf"^the probe \(scripted probe\) has no figure: [^\n]* 3 that do not \({why}\)[^\n]*$"
    with pytest.raises(BandwidthError, match=expected):
        gbps(spoilt)


def test_a_look_that_nothing_is_judged_by_has_a_figure_beside_the_busiest_neighbours():
    assert gbps(dropped("run-delay", SLOW), tolerates_run_delay=True) == pytest.approx(1.0)
    with pytest.raises(BandwidthError, match="has no figure"):
        gbps(dropped("run-delay", SLOW))


def test_gbps_of_the_host():
    assert probe_alone("cpu", 1 << 16, 1 << 16, tolerates_run_delay=True) > 0


def test_what_the_process_said_last_is_in_the_message():
    expected = (
        r"^the probe could not run alone: it ended with exit status 1: .*found device 'tape', expected one of [^\n]*$"
    )
    with pytest.raises(BandwidthError, match=expected):
        probe_alone("tape", 8, 8)


def test_neither_modules_nor_a_checkout_in_the_current_folder_are_run(tmp_path, monkeypatch):
    for name in ("random.py", "json.py", "numpy.py", "pytest_bandwidth/__init__.py"):
        module = tmp_path / name
        module.parent.mkdir(exist_ok=True)
        module.write_text(f"open({str(tmp_path / 'was_run')!r}, 'a').write({name!r})\n")
    monkeypatch.chdir(tmp_path)
    assert probe_alone("cpu", 1 << 16, 1 << 16, tolerates_run_delay=True) > 0
    assert not (tmp_path / "was_run").exists()
