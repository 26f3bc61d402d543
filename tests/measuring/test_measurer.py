"""One measurement at a time on a device; what inputs identify it, and which versions a run records."""

import os
import platform
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from types import ModuleType

import numpy
import numpy as np
import pytest
from filelock import FileLock, Timeout
from full_disks import file_size_limit
from user_project import bandwidth_on

from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import DeviceUnavailable, UsageError
from pytest_bandwidth.measuring.measurer import LONGEST_VERSION, DeviceLock, loaded_versions, lock_folder

DEVICE = DeviceIdentity("cpu", "A host", None, "serial-1")
HOLDER = """
import sys, time
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.measuring.measurer import DeviceLock
with DeviceLock(DeviceIdentity("cpu", "A host", None, "serial-1"), 30.0).held():
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def started(*arguments):
    return subprocess.Popen([sys.executable, "-c", HOLDER, *arguments], stdout=subprocess.PIPE, text=True)


@pytest.fixture
def other_process():
    child = started("--token=hunter2", "--bandwidth-history=s3://key:hunter2@b/h", "hunter2")
    assert child.stdout.readline() == "held\n"
    yield child
    child.kill()
    child.communicate()


# The message shows no secret of the process that holds the lock.
SAID = r"\(-c … --bandwidth-history=s3://\*\*\*@b/h …\)"


def refused(holder, lock=None, match=r"measured by process {pid} .*bandwidth_lock_timeout"):
    """See that the device is not free, and why."""
    expected = match.format(pid=holder.pid)
    with pytest.raises(DeviceUnavailable, match=expected), (lock or DeviceLock(DEVICE, 0.3)).held():
        pass


def test_a_second_process_waits_and_names_the_holder_unless_that_is_its_parent(other_process):
    refused(other_process, match=f"measured by process {{pid}} {SAID}.*bandwidth_lock_timeout")
    assert "hunter2" not in "".join(file.read_text() for file in lock_folder().iterdir())
    with DeviceLock(DeviceIdentity("cpu", "A host", None, "serial-2"), 0.3).held():
        pass
    with DeviceLock(DEVICE, 0.3, held_by_parent=True).held():
        pass
    assert other_process.poll() is None


def test_nobody_is_told_where_nobody_waits_and_it_can_be_taken_again_inside_itself():
    told = []
    lock = DeviceLock(DEVICE, 0.3)
    with lock.held(told.append, told.append), lock.held(told.append, told.append):
        pass
    assert told == []
    lock = DeviceLock(DEVICE, 0.3)
    with pytest.raises(ZeroDivisionError), lock.held(), lock.held():
        raise ZeroDivisionError
    with DeviceLock(DEVICE, 0.3).held():
        pass


def test_a_dead_holder_holds_nothing(other_process):
    other_process.kill()
    with DeviceLock(DEVICE, 30.0).held():
        pass


@contextmanager
def in_line():
    """Another process, which waits for the device that is held."""
    waiter = started()
    try:
        (line,) = lock_folder().glob("*.line")
        for _ in range(600):
            try:
                with FileLock(line).acquire(timeout=0):
                    pass
            except Timeout:
                break
            time.sleep(0.05)  # it is starting
        else:
            raise AssertionError("no process waits for the device")
        yield waiter
    finally:
        waiter.kill()
        waiter.communicate()


def test_who_waits_comes_before_who_had_it():
    lock = DeviceLock(DEVICE, 0.3)
    with ExitStack() as ends:
        with lock.held():
            waiter = ends.enter_context(in_line())
        refused(waiter, lock)


def test_it_is_held_and_named_until_the_outer_hold_ends_though_another_process_waits():
    lock = DeviceLock(DEVICE, 0.3)
    with lock.held(), in_line() as waiter:
        for _ in range(2):
            with lock.held():
                pass
            (holder,) = lock_folder().glob("*.holder")
            assert f'"pid": {os.getpid()}' in holder.read_text()
            assert waiter.poll() is None


def test_a_garbled_holder_file_is_no_trouble(other_process):
    for garbage in ("", "[", "[1]"):
        (holder,) = lock_folder().glob("*.holder")
        holder.write_text(garbage)
        with pytest.raises(DeviceUnavailable, match="measured by another process"), DeviceLock(DEVICE, 0.1).held():
            pass
    assert other_process.poll() is None


def test_a_full_disk_costs_the_holders_name_and_nothing_else():
    with file_size_limit(0), DeviceLock(DEVICE, 0.3).held():
        (holder,) = lock_folder().glob("*.holder")
        assert holder.read_text() == ""


@pytest.fixture
def taken(tmp_path, request):
    """What lies where the folder of locks belongs."""
    folder, elsewhere = tmp_path / f"pytest-bandwidth-{os.getuid()}", tmp_path / "elsewhere"
    elsewhere.mkdir()
    if request.param == "a file":
        folder.touch()
    elif request.param in ("a link", "a dead link"):
        folder.symlink_to(elsewhere if request.param == "a link" else tmp_path / "nowhere")
    else:
        folder.mkdir()
        folder.chmod(0o777)
    return folder


@pytest.mark.parametrize("taken", ["a file", "a link", "a dead link", "an open folder"], indirect=True)
def test_where_the_name_is_taken_nothing_is_locked(taken, tmp_path):
    with pytest.raises(
        DeviceUnavailable, match=rf"^the folder of locks {taken} is not this user's alone.*TMPDIR$"
    ) as error:
        DeviceLock(DEVICE, 0.3)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "nowhere").exists()
    assert taken.lstat(), "nothing of it was touched"


def test_without_a_temporary_folder_nothing_is_locked(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(DeviceUnavailable, match="No such file or directory"):
        lock_folder()


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives folders away")
def test_another_users_folder_is_refused(tmp_path):
    folder = tmp_path / f"pytest-bandwidth-{os.getuid()}"
    folder.mkdir(mode=0o700)
    os.chown(folder, 54321, -1)
    with pytest.raises(DeviceUnavailable, match="found one of the user 54321"):
        lock_folder()


N = 1 << 10


@pytest.fixture
def bandwidth(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return bandwidth_on("cpu", tmp_path)


def gather(x, index, out):
    np.take(x, index, out=out)


class Gathers:
    """Measures a gather, each time under a label of its own."""

    def __init__(self, bandwidth):
        self.bandwidth, self.x, self.out, self.number = bandwidth, np.ones(N), np.empty(N), 0

    def code(self, index, function=gather, **more):
        self.number += 1
        declared = {"reads": (self.x, index), "writes": self.out, **more}
        args = () if function is not gather else (self.x, index, self.out)
        return self.bandwidth(function, *args, label=str(self.number), **declared).code


@pytest.fixture
def gathers(bandwidth):
    return Gathers(bandwidth)


def test_other_indices_are_other_inputs_and_floats_are_none(gathers):
    index = np.arange(N)
    first = gathers.code(index)
    gathers.x += 1
    assert gathers.code(index.copy()).is_same(first, by="sass")
    other = gathers.code(index[::-1].copy())
    assert other.changes_since(first) == ("the contents of an index array changed",)
    assert not other.is_same(first, by="sass")


def test_arrays_count_that_are_undeclared_or_of_a_closure(gathers):
    first, other = (gathers.code(index, reads="64 KiB") for index in (np.arange(N), np.arange(N)[::-1].copy()))
    assert first.inputs != other.inputs

    def made(index):
        x, out = gathers.x, gathers.out
        return lambda: np.take(x, index, out=out)

    first, other = (gathers.code(i, made(i), reads="64 KiB") for i in (np.arange(N), np.arange(N)[::-1].copy()))
    assert first.inputs != other.inputs
    assert first.function == other.function


def test_an_array_that_is_only_written_does_not_count_nor_floats(bandwidth, monkeypatch):
    out = np.zeros(N, int)
    codes = [
        bandwidth(lambda: out.fill(3), writes=out, label=f"{n}", setup=lambda n=n: out.fill(n)).code for n in (1, 2)
    ]
    assert codes[0].inputs is codes[1].inputs is None
    view = [
        bandwidth(lambda: out.fill(3), reads=out[:4], writes=out, label=f"view {n}", setup=lambda n=n: out.fill(n)).code
        for n in (1, 2)
    ]
    assert view[0].inputs != view[1].inputs
    monkeypatch.setattr("pytest_bandwidth.devices.contents.host_contents", None)
    x = np.ones(N)
    assert bandwidth(np.sum, x, reads=x).code.inputs is None


def test_contents_are_those_before_the_first_run_and_after_set_up(bandwidth):
    counts = np.zeros(N, int)

    def run(label, **more):
        return bandwidth(lambda: np.add(counts, 1, out=counts), reads=counts, writes=counts, label=label, **more).code

    first = run("first")
    assert counts[0] > 1
    assert run("second").inputs != first.inputs
    assert run("set up", setup=lambda: counts.fill(0)).inputs == first.inputs


def test_random_indices_are_the_same_in_every_run_of_a_test(bandwidth):
    device = bandwidth._device
    drawn = []
    for _ in range(2):
        device.begin_test()
        bandwidth.random(7, "float32")
        drawn.append([bandwidth.random(N, dtype) for dtype in ("int32", "bool", "int32")])
    for one, other in zip(*drawn, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.array_equal(drawn[0][0], drawn[0][2])
    assert not np.array_equal(bandwidth.random(N), bandwidth.random(N))


def test_what_is_opaque_does_not_count(gathers):
    index, other = np.arange(N), np.arange(N)[::-1].copy()
    reads = {"reads": "64 KiB"}
    assert gathers.code(index, opaque=1, **reads).is_same(gathers.code(other, opaque="index", **reads), by="sass")
    with pytest.raises(UsageError, match=r"opaque='nothing', expected places .* 0 to 2, or .* \(x, index, out\)"):
        gathers.code(index, opaque="nothing")
    for wrong in (3, -1, None.__class__, 1.5):
        with pytest.raises(UsageError, match="opaque="):
            gathers.code(index, opaque=(wrong,))


def test_contents_that_are_unknown_make_the_code_unknown_and_say_why(gathers, monkeypatch):
    def refuse(*_):
        raise UsageError("it takes too long")

    monkeypatch.setattr("pytest_bandwidth.devices.contents.host_contents", refuse)
    code = gathers.code(np.arange(N))
    assert not code.is_same(code, by="sass")
    (finding,) = [found for found in gathers.bandwidth.measurements["1"].findings if "code" in found.code]
    assert finding.text == "its code is not known: the contents of its index arrays are not known (it takes too long)"


def test_opaque_fields_and_parameters_of_a_launch(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    bandwidth = bandwidth_on("traffic", tmp_path)
    text = 'extern "C" __global__ void fill(float* x, int seed, int n) { if (threadIdx.x < n) x[threadIdx.x] = seed; }'
    x = bandwidth.empty(64)

    def code(seed, **more):
        launch = (bandwidth.kernel(text, "fill"), 1, 64, (x, np.int32(seed), np.int32(64)))
        return bandwidth.launch(*launch, writes=x, label=str(more) + str(seed), **more).code

    assert code(1).launch != code(2).launch
    assert code(1, opaque="seed").is_same(code(2, opaque=("seed",)), by="ptx")
    assert code(1, opaque=1).launch == code(3, opaque="seed").launch
    with pytest.raises(UsageError, match=r"0 to 2, or names of parameters or fields \(x, seed, n\)"):
        code(1, opaque="sed")


LIBRARIES = ("numba", "llvmlite", "cupy", "torch", "triton", "jax", "tinygrad")


@pytest.fixture
def only_numpy(monkeypatch):
    """None of the libraries is loaded but NumPy."""
    for name in LIBRARIES:
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.usefixtures("only_numpy")
def test_what_is_loaded_is_named_with_its_version():
    assert loaded_versions() == {
        platform.system().lower(): platform.release(),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
    }


@pytest.mark.usefixtures("only_numpy")
def test_a_version_is_a_text_and_short(monkeypatch):
    for name, version in (("torch", "2.9" + "0" * 100), ("numba", ("0", "61"))):
        module = ModuleType(name)
        module.__version__ = version
        monkeypatch.setitem(sys.modules, name, module)
    found = loaded_versions()
    assert found["torch"] == "2.9" + "0" * (LONGEST_VERSION - 3)
    assert "numba" not in found
