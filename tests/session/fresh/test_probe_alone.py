"""The probe alone in a fresh process, and what is said where it cannot run."""

import pytest

from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.session.fresh.probe import probe_alone


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
