"""One finding for a run whose device changed, and one for each change of code that several tests run."""

from dataclasses import replace

from pytest_bandwidth.domain.outcomes.outcome import Outcome
from pytest_bandwidth.domain.outcomes.run_findings import DEVICE_CHANGED, ONE_CAUSE, device_finding, shared_causes

WITHIN = Outcome("t.py::t", "t.py::t", None, "WITHIN", "within", "")
DOWN = replace(WITHIN, status="DEVICE", code="device", reason="the device is down, not the kernel")


def test_what_a_changed_device_spoilt_is_counted_once():
    found = device_finding([WITHIN, DOWN, replace(DOWN, reason="the same in other words")])
    assert found is not None
    assert found.code == DEVICE_CHANGED
    assert found.text == (
        "2 of 3 measurements could not be judged, since the device changed: the device is down, not the kernel"
    )


def test_without_one_there_is_none():
    assert device_finding([WITHIN]) is None


def regressed(key, then, now):
    return replace(WITHIN, key=key, nodeid=key, status="REGRESSED", baseline={"code": then}, code_identity=now)


def test_a_changed_kernel_is_named_once_with_the_tests_that_run_it():
    then, now = {"ptx": "a" * 32, "sass": "b" * 32, "launch": "1"}, {"ptx": "c" * 32, "sass": "d" * 32, "launch": "2"}
    several = [regressed(f"t.py::t[{n}]", then, now) for n in range(7)]
    function = [regressed(f"t.py::f{n}", {"function": "e" * 32}, {"function": "f" * 32}) for n in range(2)]
    alone = regressed("t.py::alone", {"ptx": "a" * 32}, {"ptx": "e" * 32})
    first, second = shared_causes([alone, *function, *several, WITHIN])
    assert first.outcomes == tuple(several)
    assert first.finding().code == ONE_CAUSE
    assert first.finding().text == (
        "the same kernel's code changed (aaaaaaaa → cccccccc), the likely cause of 7 of 10 REGRESSED: "
        "t.py::t[0], t.py::t[1], t.py::t[2], t.py::t[3], t.py::t[4] and 2 more"
    )
    assert second.text.startswith("the same function's code changed (eeeeeeee → ffffffff), the likely cause of 2 of 10")


def test_what_is_not_surely_one_change_of_a_kernel_is_no_shared_cause():
    launch = [regressed(f"t.py::l{n}", {"ptx": "a", "launch": "1"}, {"ptx": "a", "launch": "2"}) for n in range(2)]
    unknown = [regressed(f"t.py::u{n}", {}, {"ptx": "b"}) for n in range(2)]
    within = [replace(regressed(f"t.py::w{n}", {"ptx": "a"}, {"ptx": "b"}), status="WITHIN") for n in range(2)]
    no_entry = [replace(one, baseline=None) for one in unknown]
    assert shared_causes([*launch, *unknown, *within, *no_entry]) == []
    machine = [regressed(f"t.py::m{n}", {"ptx": "a", "sass": "b"}, {"ptx": "a", "sass": "c"}) for n in range(2)]
    (one,) = shared_causes(machine)
    assert one.text.startswith("the same kernel became other machine code (b → c)")
