"""Specify the plugin's own hooks, which a conftest.py, another plugin or a feature implements.

A feature is a module that an entry point of the group `pytest_bandwidth.features` names. Its hooks need `@hookimpl`,
because commands call them without pytest. Hooks of a conftest.py, or of a plugin of the group `pytest11`, do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pluggy import HookimplMarker, HookspecMarker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pytest

    from pytest_bandwidth.devices.base import Device as Device
    from pytest_bandwidth.devices.base import Launch as Launch
    from pytest_bandwidth.devices.base import Probe as Probe
    from pytest_bandwidth.devices.base import Sample as Sample
    from pytest_bandwidth.devices.base import TimedDevice as TimedDevice
    from pytest_bandwidth.devices.base import Watch as Watch
    from pytest_bandwidth.devices.cpu.kernels import HostKernel as HostKernel
    from pytest_bandwidth.devices.sampling import measure_timed as measure_timed
    from pytest_bandwidth.domain.device import Conditions as Conditions
    from pytest_bandwidth.domain.device import DeviceIdentity as DeviceIdentity
    from pytest_bandwidth.domain.device import DeviceType as DeviceType
    from pytest_bandwidth.domain.errors import UsageError as UsageError
    from pytest_bandwidth.domain.measured.explanation import Explanation as Explanation
    from pytest_bandwidth.domain.measured.explanation import Operator as Operator
    from pytest_bandwidth.domain.measured.explanation import Wording as Wording
    from pytest_bandwidth.domain.measured.measurement import Finding as Finding
    from pytest_bandwidth.domain.measured.measurement import Measurement as Measurement
    from pytest_bandwidth.domain.measured.measurement import Rounds as Rounds
    from pytest_bandwidth.evidence.fresh_processes import JudgedTest as JudgedTest
    from pytest_bandwidth.fixture.watched import Watched as Watched
    from pytest_bandwidth.frameworks.base import Framework as Framework
    from pytest_bandwidth.judging.judge import Judged as Judged
    from pytest_bandwidth.options.options import options_of as options_of
    from pytest_bandwidth.options.settings import Given as Given
    from pytest_bandwidth.options.settings import option as option
    from pytest_bandwidth.options.settings import switch as switch
    from pytest_bandwidth.outcomes.outcome import Outcome as Outcome
    from pytest_bandwidth.reports.columns import Bar as Bar
    from pytest_bandwidth.reports.columns import Column as Column
    from pytest_bandwidth.reports.columns import SmallTable as SmallTable
    from pytest_bandwidth.reports.formats import Format as Format
    from pytest_bandwidth.reports.formats import Reporter as Reporter
    from pytest_bandwidth.session.publishing.gathered import DeviceReport as DeviceReport

# Names that conftest.py files import from here, with their modules, which are imported only when a name is used.
_TYPES = {
    **dict.fromkeys(("Device", "Launch", "Probe", "Sample", "TimedDevice", "Watch"), "pytest_bandwidth.devices.base"),
    **dict.fromkeys(("Conditions", "DeviceIdentity", "DeviceType"), "pytest_bandwidth.domain.device"),
    **dict.fromkeys(("Finding", "Measurement", "Rounds"), "pytest_bandwidth.domain.measured.measurement"),
    "measure_timed": "pytest_bandwidth.devices.sampling",
    **dict.fromkeys(("Explanation", "Operator", "Wording"), "pytest_bandwidth.domain.measured.explanation"),
    "Watched": "pytest_bandwidth.fixture.watched",
    "Framework": "pytest_bandwidth.frameworks.base",
    "HostKernel": "pytest_bandwidth.devices.cpu.kernels",
    "Outcome": "pytest_bandwidth.outcomes.outcome",
    **dict.fromkeys(("Bar", "Column", "SmallTable"), "pytest_bandwidth.reports.columns"),
    "Format": "pytest_bandwidth.reports.formats",
    "UsageError": "pytest_bandwidth.domain.errors",
    "Judged": "pytest_bandwidth.judging.judge",
    "JudgedTest": "pytest_bandwidth.evidence.fresh_processes",
    "Reporter": "pytest_bandwidth.reports.formats",
    "DeviceReport": "pytest_bandwidth.session.publishing.gathered",
    "options_of": "pytest_bandwidth.options.options",
    **dict.fromkeys(("Given", "option", "switch"), "pytest_bandwidth.options.settings"),
}
# The same markers as pytest's, made here so that commands need not import pytest.
hookspec, hookimpl = HookspecMarker("pytest"), HookimplMarker("pytest")


def __getattr__(name: str) -> Any:
    if name in _TYPES:
        return getattr(import_module(_TYPES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class Command:
    """Name a command of `pytest-bandwidth`.

    module: the name of the command's module. Its function `declare(parser)` adds the arguments to an
    `argparse.ArgumentParser`, and `run(options)` returns the exit status. Its docstring is the command's description.
    takes_rest: whether the arguments after ``--`` are for another program; they are in `options.rest`, a list.
    """

    def __init__(self, name: str, help: str, module: str, takes_rest: bool = False) -> None:
        self.name, self.help, self.module, self.takes_rest = name, help, module, takes_rest


@hookspec
def pytest_bandwidth_commands() -> list[Command]:
    """Add commands to `pytest-bandwidth`. Only a feature can do this, because commands load no conftest.py.

    Example::

        @hookimpl
        def pytest_bandwidth_commands():
            return [Command("rank", "list the tests by GB/s", "my_package.rank")]
    """


@hookspec
def pytest_bandwidth_columns() -> list[Column]:
    """Add columns to the tables of the terminal, Markdown, HTML and CSV.

    A column gets its figure from a result, an `Outcome`: a text, a number, or None for a result without one. A test
    puts its own figures into `bandwidth.tags`; each of the test's measurements has all of its tags.

    Example::

        from pytest_bandwidth.hooks import Column

        def pytest_bandwidth_columns():
            return [Column("rows", "rows", lambda result: result.tags.get("rows"))]
    """


@hookspec
def pytest_bandwidth_options() -> type:
    """Add options to the command line and the ini file. Only a feature can: conftest.py files are loaded too late.

    Return a frozen dataclass whose fields are made by `option` or `switch`. A field `rack` is
    ``--bandwidth-rack`` and ``bandwidth_rack``; `options_of(config, RackOptions)` returns the values.

    Example::

        from dataclasses import dataclass
        from pytest_bandwidth.hooks import hookimpl, option, options_of

        @dataclass(frozen=True)
        class RackOptions:
            rack: str = option("NAME", "the rack of the machine", str, "")

        @hookimpl
        def pytest_bandwidth_options():
            return RackOptions
    """


@hookspec
def pytest_bandwidth_given(config: pytest.Config, options: dict[str, Given]) -> None:
    """Change the given options before the plugin reads them. A `Given` is an option's text, and its place for messages.

    Example::

        def pytest_bandwidth_given(config, options):
            options.setdefault("baseline", Given(f"baselines/{platform.node()}.yaml", "conftest.py"))
    """


@hookspec
def pytest_bandwidth_formats() -> list[Format]:
    """Add file formats for a run's document.

    A `Format` makes a file's content from the document alone, so `pytest-bandwidth report` can write features' formats,
    too. `pytest_addoption` adds its option. For several files, or for the results themselves, use a `Reporter`. A
    format with a kind of the core (``json``, ``csv``, ``md``) replaces the core's format.

    Example::

        from pytest_bandwidth.hooks import Format

        def pytest_addoption(parser):
            parser.addoption("--team-report", metavar="FILE")

        def slowest(document):
            timed = [row for row in document["results"] if row["gbps"] is not None]  # None on a counting device
            rows = sorted(timed, key=lambda row: row["gbps"])
            return "Slowest first\\n" + "".join(f"- {row['key']}: {row['gbps']:.1f} GB/s\\n" for row in rows)

        def pytest_bandwidth_formats():
            return [Format("txt", slowest, begins="Slowest first", option="team_report")]
    """


@hookspec
def pytest_bandwidth_reporters(config: pytest.Config) -> list[Reporter]:
    """Add reporters to this run. Return an empty list if the user did not ask for their files.

    The plugin calls `write` for each device, with a `suffix` of None if the run has one device. Invalid results have a
    `utilization`, too; their `valid_utilization` is None.

    Example::

        from pathlib import Path
        from pytest_bandwidth.hooks import UsageError

        class Lowest:
            def check(self):
                if not Path("shares").is_dir():
                    raise UsageError("found no folder shares, expected one: mkdir shares")

            def write(self, document, outcomes, suffix):
                known = [outcome for outcome in outcomes if outcome.valid_utilization is not None]
                rows = sorted(known, key=lambda outcome: outcome.valid_utilization)
                path = Path("shares", f"lowest-{suffix or 'device'}.txt")
                path.write_text("".join(f"{outcome.nodeid}\\n" for outcome in rows))
                return [str(path)]

        def pytest_bandwidth_reporters(config):
            return [Lowest()]
    """


@hookspec
def pytest_bandwidth_start(config: pytest.Config, identity: DeviceIdentity) -> None:
    """Check the device before any test runs; raise `UsageError` to refuse it.

    Example::

        from pytest_bandwidth.hooks import UsageError

        def pytest_bandwidth_start(config, identity):
            if identity.on_gpu and not Path("/dev/nvidia0").exists():
                raise UsageError("found no /dev/nvidia0, expected the first GPU: pass it to the container")
    """


@hookspec
def pytest_bandwidth_judged(config: pytest.Config, test: JudgedTest, judged: dict[str, Judged]) -> None:
    """Add evidence to a test's measurements after they were judged: replace values of `judged`, by key.

    `test` has the device, and starts processes that run the test again. A further run of an update calls this hook,
    too: there `test.is_judged` is False, and the verdicts have no meaning.

    Example::

        def pytest_bandwidth_judged(config, test, judged):
            for key, one in judged.items():
                measurement = one.measurement.with_detail("load", os.getloadavg()[0])
                judged[key] = replace(one, measurement=measurement)
    """


@hookspec
def pytest_bandwidth_finished(config: pytest.Config, reports: Sequence[DeviceReport]) -> None:
    """Use the run's reports, one for each device, after baselines were updated and files were written.

    Example::

        def pytest_bandwidth_finished(config, reports):
            for report in reports:
                print(report.name, len(report.outcomes))
    """


@hookspec
def pytest_bandwidth_devices() -> list[DeviceType]:
    """Add types of devices, which `--bandwidth-device=KIND` opens.

    A device is a `Device`, whose `measure` returns a `Measurement` with `Rounds(stop="counted")` and its `counts`, or a
    `TimedDevice`, whose `measure` returns `measure_timed(self, workload, budget, progress)`. Each process that the
    plugin starts opens the device again, by its identity's `kind` and `variant`. A count that rises above the
    baseline's is REGRESSED, one that falls IMPROVED; a table shows counts by columns.

    Example: a device that counts the calls of Python functions::

        import sys
        from dataclasses import replace
        import numpy as np
        from pytest_bandwidth.hooks import Column, Device, DeviceIdentity, DeviceType, Measurement, Rounds

        class Calls(Device):
            xp, identity = np, DeviceIdentity("calls", "calls of Python", None, "any", timed_on="nothing")

            def random(self, shape, dtype):
                return np.random.default_rng(0).random(shape).astype(dtype)

            def empty(self, shape, dtype):
                return np.empty(shape, dtype)

            def nbytes(self, array):
                return array.nbytes

            def count(self, workload):
                self.run(workload)  # the first time, more of the plugin's own functions run
                if workload.setup is not None:
                    workload.setup()
                events = []
                sys.setprofile(lambda frame, event, argument: events.append(event))
                try:
                    workload.call()
                finally:
                    sys.setprofile(None)
                return events.count("call")

            def measure(self, workload, budget, progress):
                nothing = replace(workload, call=workload.nothing)  # one call itself
                calls = self.count(workload) - self.count(nothing) + 1
                what = (workload.label, workload.traffic, self.identity, "sys.setprofile", Rounds(stop="counted"))
                return Measurement(*what, counts={"calls": calls})

        def pytest_bandwidth_devices():
            return [DeviceType("calls", lambda variant: Calls(), "nothing", "calls")]

        def pytest_bandwidth_columns():
            return [Column("calls", "calls", lambda result: result.counts.get("calls"))]
    """


@hookspec
def pytest_bandwidth_frameworks() -> dict[str, Callable[[Any], Framework]]:
    """Add frameworks whose arrays tests use: for a module's name, a callable that makes a `Framework` of the module.

    A `Framework` recognises its own arrays, locates their memory, and waits for asynchronous work on them.

    Example::

        def pytest_bandwidth_frameworks():
            return {"mxnet": MxNet}
    """


@hookspec(firstresult=True)
def pytest_bandwidth_explain(
    framework: str | None, function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]
) -> Explanation | None:
    """Run ``function(*args, **keywords)`` once; return the bytes that its operators move, or None for other frameworks.

    framework: the name of the `Framework` whose arrays are among the arguments; None if there are no such arrays.

    Example::

        from pytest_bandwidth.hooks import Explanation, Operator, Wording

        def pytest_bandwidth_explain(framework, function, args, keywords):
            if framework == "MXNet":
                operators = tuple(Operator(name, nbytes) for name, nbytes in profiled(function, args, keywords))
                return Explanation(Wording("MXNet", "operator"), operators, least_bytes=0, intermediates=None)
    """


@hookspec
def pytest_bandwidth_watch(config: pytest.Config, watched: Watched) -> Watch | None:
    """Watch a measurement, untimed, before and after each sample. Return None for measurements that you do not watch.

    The plugin calls this hook in the run that the user started, not in processes that compare old code with new.

    Example::

        from pytest_bandwidth.hooks import Finding, Watch

        class NotANumber(Watch):
            seen = False

            def after(self, place, value):
                self.seen |= isinstance(value, float) and value != value

            def finished(self, place, measurement):
                found = Finding("work:not-a-number", "it returned NaN")
                return measurement.refuted(found) if self.seen else measurement

        def pytest_bandwidth_watch(config, watched):
            return NotANumber()
    """


@hookspec(firstresult=True)
def pytest_bandwidth_sectors(
    old: str, new: str, launch: Launch, host_args: Callable[[], tuple[Any, ...]]
) -> Mapping[str, int] | None:
    """Count the sectors of 32 bytes that a block of a kernel requests, by its old code (`then`) and its new (`now`).

    old, new: PTX, each a module of one kernel. host_args: copies the launch's arguments, arrays as NumPy's. Return None
    if the sectors cannot be counted.

    Example::

        def pytest_bandwidth_sectors(old, new, launch, host_args):
            return {"then": simulated(old, launch, host_args()), "now": simulated(new, launch, host_args())}
    """


@hookspec(firstresult=True)
def pytest_bandwidth_distinct_bytes(
    ptx: str, launch: Launch, host_args: Callable[[], tuple[Any, ...]]
) -> Mapping[str, int] | None:
    """Count the distinct bytes that a launch on a GPU moves, for `min_sol`: each byte once, in the whole grid.

    ``read`` counts the bytes that it reads before it writes them, ``written`` the bytes that it writes. ptx: a module
    of its kernel alone. host_args: as in `pytest_bandwidth_sectors`. Return None if they cannot be counted.

    Example::

        def pytest_bandwidth_distinct_bytes(ptx, launch, host_args):
            return {"read": launch.args[0].nbytes, "written": launch.args[1].nbytes}
    """


@hookspec
def pytest_bandwidth_host_kernels() -> list[HostKernel]:
    """Add kernels that the device `cpu` runs instead of CUDA kernels, so that their tests run without a GPU, too.

    Example::

        from numba import njit, prange
        from pytest_bandwidth.hooks import HostKernel

        @njit(parallel=True)
        def twice(threads, out, x, n):
            for i in prange(n):
                out[i] = 2 * x[i]

        def pytest_bandwidth_host_kernels():
            return [HostKernel("twice", twice, "out:f32* x:f32* n:i64", lambda n: (n, n), file="twice.cu")]
    """


@hookspec
def pytest_bandwidth_environment(config: pytest.Config, environment: dict[str, Any]) -> None:
    """Change `environment`, the JSON document's facts about the run's software and host, before anything is written."""


@hookspec
def pytest_bandwidth_document(config: pytest.Config, document: dict[str, Any]) -> None:
    """Change a device's whole JSON document, from which every file is written. docs/json.md describes its `results`.

    The terminal does not show these changes, but those of `pytest_bandwidth_judged`.
    """


@hookspec(firstresult=True)
def pytest_bandwidth_peaks(config: pytest.Config, identity: DeviceIdentity) -> float | str | None:
    """Return a device's peak bandwidth, in GB/s or as text with a unit; None for unknown devices.

    `bandwidth_peak` of the ini file overrides this peak, which overrides those of the baseline, datasheet and NVML.
    """
