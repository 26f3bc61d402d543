"""Mark tests by layer and cost, and set what no test inherits."""

import compileall
import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

# Runs inside this process forget the modules that they were the first to load; PyYAML's compiled part keeps its own.
import yaml  # noqa: F401
from kept import VARIABLE, CompiledOnce, folder

pytest_plugins = ("pytester", "user_project")
# Before any test has a home of its own, or a module that compiles is loaded.
os.environ[VARIABLE] = str(folder())
CompiledOnce.install()

ROOT = Path(__file__).parent
# A test's layer is what its nearest mark says, else its folder, else its fixtures; else it is `pure`.
LAYERS = ("pure", "emulated", "in_process", "processes", "product")
OF_FOLDERS = {
    "card": "processes",
    "devices/code": "emulated",
    "features/traffic": "emulated",
    "gpu": "processes",
    "kernels": "emulated",
    "plugin": "processes",
    "product": "product",
    "suite": "emulated",
}
OF_FIXTURES = {"project": "processes", "pytester": "in_process"}
# The first measures, one by one, while other workers compute; the second compiles and parses each kernel once; a test
# of the third looks back on all the others.
IN_ONE_WORKER = ("tests/plugin", "tests/kernels", "tests/features/traffic/ptx/actions")
# Few tests that take long: begun last, each would leave the other workers without work.
BEGUN_FIRST = ("tests/plugin", "tests/card", "tests/product")
# Parts of the product that take many seconds to make or to start.
SLOW_FIXTURES = {"copy", "open_page", "shell", "site", "wheel"}

# Each worker has a processor, and what it measures as many threads.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("NUMBA_NUM_THREADS", "1")
# Xdist's workers count their lines from their start; what tests start there does not: it is timed. On the emulated card
# time is virtual, and what is started counts.
COUNTING = {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_PROCESS_")}
if "PYTEST_XDIST_WORKER" in os.environ:
    for name in COUNTING:
        del os.environ[name]

# Where Python is told to write no byte code, each of a thousand children would compile the package anew. This process
# writes it, in so far as pytest rewrites what it imports until all is collected; the children only read it. Of tests'
# own files none is kept: one of the same size, changed within the second, would be taken for the old one.
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
sys.dont_write_bytecode = False
if "PYTEST_XDIST_WORKER" not in os.environ:
    for folder in (ROOT.parent / "pytest_bandwidth", ROOT / "emulated_card"):
        compileall.compile_dir(folder, quiet=2)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Search for no garbage while tests are imported: all of it stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Keep no byte code of what tests write, in this process neither."""
    sys.dont_write_bytecode = True


@pytest.fixture(scope="module", autouse=True)
def _loaded_is_no_garbage() -> None:
    """Leave what was loaded before this module, libraries and tests, out of searches for garbage: each takes long."""
    gc.collect()
    gc.freeze()


def layer(item: pytest.Item) -> str:
    """Return the name of the item's layer."""
    for mark in item.iter_markers():
        if mark.name in LAYERS:
            return mark.name
    folder = item.path.parent.relative_to(ROOT).as_posix()
    for start, name in OF_FOLDERS.items():
        if folder == start or folder.startswith(f"{start}/"):
            return name
    fixtures = getattr(item, "fixturenames", ())
    return next((name for fixture, name in OF_FIXTURES.items() if fixture in fixtures), "pure")


def is_slow(item: pytest.Item, of_layer: str) -> bool:
    """Say whether `make test` leaves the item to `make test-slow`."""
    if item.get_closest_marker("smoke") is not None:
        return False
    if of_layer == "product":
        return not SLOW_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))
    return of_layer == "processes"


def kept_together(nodeid: str) -> str:
    """Return the folder or file whose tests run in one worker: a folder of `IN_ONE_WORKER`, else the test's file."""
    file = nodeid.partition("::")[0]
    return next((folder for folder in IN_ONE_WORKER if file.startswith(f"{folder}/")), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Spread the tests by `kept_together`. Xdist 3.8's marks of groups do not reach pytest 9.2's node ids."""
    from xdist.scheduler import LoadScopeScheduling  # where the hook is called, xdist is installed

    class ByFolderOrFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return kept_together(nodeid)

    config.option.loadscopereorder = False  # `pytest_collection_modifyitems` has put them in order
    return ByFolderOrFile(config, log) if config.getoption("dist") == "loadgroup" else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Set the marks before `-m` looks at them; then put what is begun together in order: long ones, large ones."""
    for item in items:
        if ROOT not in item.path.parents:  # the built-in suite, run from here
            continue
        of_layer = layer(item)
        item.add_marker(of_layer)
        if is_slow(item, of_layer):
            item.add_marker("slow")
    yield
    sizes = Counter(kept_together(item.nodeid) for item in items)
    items.sort(key=lambda item: _turn(kept_together(item.nodeid), sizes))


def _turn(together: str, sizes: Counter[str]) -> tuple[int, int, str]:
    first = (number for number, start in enumerate(BEGUN_FIRST) if together.startswith(start))
    return next(first, len(BEGUN_FIRST)), -sizes[together], together


@pytest.fixture(scope="session", autouse=True)
def _not_this_job() -> Iterator[None]:
    """Keep runs inside tests, and inside fixtures of whole modules, apart from the job that runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GITHUB_ACTIONS", raising=False)
        patch.delenv("GITHUB_STEP_SUMMARY", raising=False)
        # By these pytest prints its summary's lines whole, which then say twice what tests count.
        for name in ("CI", "BUILD_NUMBER"):
            patch.delenv(name, raising=False)
        # Nor do they run in a worker, as plugins would take it.
        for name in [name for name in os.environ if name.startswith("PYTEST_XDIST_")]:
            patch.delenv(name)
        patch.setenv("DEV", "PYTHON")  # tinygrad computes in Python, which takes no compiler
        # What tests start finds a small cache, which takes no time to read before each sample. Where these tests run on
        # the emulated card, its `sitecustomize.py` goes first.
        found = (os.environ.get("PYTHONPATH", ""), str(ROOT / "support" / "small_machine"))
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, found)))
        yield


@pytest.fixture(scope="session")
def counting() -> dict[str, str]:
    """Return the variables that make a child's lines count for `make coverage`; none where they are not counted."""
    return COUNTING


@pytest.fixture
def counted(counting: dict[str, str]) -> dict[str, str]:
    """Return the environment of a child whose lines count for `make coverage`: of one that runs nowhere else."""
    return {**os.environ, **counting}


@pytest.fixture(scope="session")
def _loaded_once() -> None:
    """Load ml_dtypes, vl-convert and Numba. Numba loads most of its modules when it first compiles a function."""
    if find_spec("numba") is not None:
        import_module("numba").njit(lambda: 0)()
    for name in ("ml_dtypes", "vl_convert"):
        if find_spec(name) is not None:
            import_module(name)


@pytest.fixture(autouse=True)
def _loaded_before(request: pytest.FixtureRequest) -> None:
    """Load what cannot be loaded twice before a run inside this process does, and forgets it at its end."""
    if "pytester" in request.fixturenames:
        request.getfixturevalue("_loaded_once")


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """Restore SIGINT, which a shell's background ignores and processes that tests interrupt would inherit."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
