"""The scripted device replays what it is told, and fulfils the Protocols of a real one."""

import numpy as np
import pytest
from scripted import ScriptedDevice, dropped, except_at, repeat, then

from pytest_bandwidth.devices.base import Budget, KernelSource, Launch, Sample, TimedDevice, Workload
from pytest_bandwidth.domain.device import Conditions, Peak
from pytest_bandwidth.domain.errors import DeviceLost, NotOnThisDevice, UsageError
from pytest_bandwidth.domain.traffic import Traffic

TRAFFIC = Traffic(500_000, 500_000)


def quiet(_: str) -> None:
    pass


def workload(**more: object) -> Workload:
    return Workload(lambda: None, TRAFFIC, **more)  # type: ignore[arg-type]  # callers pass fields of Workload


def test_it_is_a_timed_device() -> None:
    assert isinstance(ScriptedDevice(), TimedDevice)


def test_the_clock_moves_by_samples_and_overhead_alone() -> None:
    device = ScriptedDevice(repeat(2e-3), overhead_seconds=1e-3)
    device.time(lambda: None, None)
    device.time(lambda: None, None)
    assert device.now() == pytest.approx(6e-3)


def test_scripts() -> None:
    assert [repeat(1.0, 2.0)(n) for n in range(4)] == [1.0, 2.0, 1.0, 2.0]
    assert [then(1.0, 2.0)(n) for n in range(4)] == [1.0, 2.0, 2.0, 2.0]
    assert [except_at([1], 9.0, repeat(1.0))(n) for n in range(3)] == [1.0, 9.0, 1.0]


def test_a_measurement_shows_the_script() -> None:
    device = ScriptedDevice(repeat(1e-3), repeat(0.5e-3), peak=Peak(2e9, "scripted"))
    found = device.measure(workload(), Budget(min_samples=8, max_seconds=1.0), quiet)
    assert found.gbps == pytest.approx(1.0)
    assert found.utilization == pytest.approx(0.5)
    assert found.relative == pytest.approx(0.5)
    assert found.method == "clock"
    assert found.invalid is None


def test_kernel_and_probe_have_their_own_positions() -> None:
    device = ScriptedDevice(then(1e-3, 2e-3), then(3e-3, 4e-3))
    probe = device.probe(TRAFFIC)
    seconds = [device.time(call, None).seconds for call in (probe.call, lambda: None, lambda: None, probe.call)]
    assert seconds == [3e-3, 1e-3, 2e-3, 4e-3]
    assert device.timed == ["probe", "kernel", "kernel", "probe"]


def test_faults_are_dropped_samples() -> None:
    device = ScriptedDevice(except_at(range(10, 30), dropped("throttled"), repeat(1e-3)))
    found = device.measure(workload(), Budget(min_samples=30, max_seconds=0.2), quiet)
    assert len(found.rounds.dropped) == 20
    assert {d.code for d in found.rounds.dropped} == {"throttled"}


def test_a_device_on_which_every_sample_is_spoilt_is_invalid_not_nan() -> None:
    device = ScriptedDevice(repeat(dropped("throttled")))
    found = device.measure(workload(), Budget(min_samples=5, max_seconds=0.05), quiet)
    assert found.invalid is not None
    assert found.gbps is None


def test_a_lost_device_stays_lost() -> None:
    device = ScriptedDevice(then(1e-3, DeviceLost("poisoned"), 1e-3))
    with pytest.raises(DeviceLost, match="poisoned"):
        device.measure(workload(), Budget(), quiet)
    with pytest.raises(DeviceLost):
        device.run(workload())


def test_any_exception_of_the_script_is_raised() -> None:
    device = ScriptedDevice(then(1e-3, KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        device.measure(workload(), Budget(), quiet)


def test_states_are_given_in_turn() -> None:
    device = ScriptedDevice(states=(Conditions(sm_clock_mhz=1.0), Conditions(sm_clock_mhz=2.0)))
    assert [device.conditions().sm_clock_mhz for _ in range(3)] == [1.0, 2.0, 2.0]


def test_whole_samples_keep_the_hosts_time() -> None:
    device = ScriptedDevice(repeat(Sample(1e-3, 5e-3)))
    assert device.time(lambda: None, None).host_seconds == 5e-3


def test_callables_really_run_and_their_value_is_kept() -> None:
    device = ScriptedDevice()
    out = device.empty(3, "float32")
    task = Workload(lambda: np.copyto(out, 7.0) or "done", TRAFFIC, setup=lambda: out.fill(0))
    assert device.measure(task, Budget(min_samples=3, max_seconds=0.02), quiet).value == "done"
    assert out.tolist() == [7.0] * 3
    assert device.run(task) == "done"


def test_random_data_is_the_same_in_every_run_and_fresh_at_every_call() -> None:
    first, second = ScriptedDevice(), ScriptedDevice()
    values = first.random((4, 5), "float32")
    assert values.shape == (4, 5)
    assert values.dtype == np.float32
    assert (values == second.random((4, 5), "float32")).all()
    assert (values != first.random((4, 5), "float32")).any()
    assert first.random(10, "int8").dtype == np.int8


def test_a_launch_calls_its_kernel_and_cuda_text_is_not_for_this_device() -> None:
    device = ScriptedDevice()
    seen: list[object] = []
    device.launcher(Launch(lambda *args: seen.extend(args), (1, 1, 1), (1, 1, 1), (1, 2)), None)()
    assert seen == [1, 2]
    with pytest.raises(NotOnThisDevice):
        device.kernel(KernelSource("", "copy"))
    with pytest.raises(UsageError):
        device.launcher(Launch("copy", (1, 1, 1), (1, 1, 1), ()), None)


def test_bytes_are_those_of_numpy_arrays_only() -> None:
    device = ScriptedDevice()
    assert device.nbytes(np.zeros(4)) == 32
    with pytest.raises(UsageError):
        device.nbytes([1, 2])


def test_the_probe_moves_what_it_is_told() -> None:
    assert ScriptedDevice().probe(TRAFFIC).bytes_moved == 1_000_000
    assert ScriptedDevice(probe_bytes=5).probe(TRAFFIC).bytes_moved == 5


def test_the_method_may_change_while_measuring() -> None:
    answers = iter(["events+block", "events"])
    device = ScriptedDevice(how=lambda: next(answers))
    assert [device.method, device.method] == ["events+block", "events"]


def test_flops_and_releases() -> None:
    device = ScriptedDevice(flops={"fp32": 1e12})
    device.release()
    assert (device.peak_flops("fp32"), device.peak_flops("fp16"), device.released) == (1e12, None, 1)
