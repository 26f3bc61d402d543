"""Run one side of an arena in a process of its own: pytest runs the tests here and reports to the parent process."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import resource
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import numpy as np
import pytest

from pytest_bandwidth import Reference
from pytest_bandwidth.devices.host import available_bytes
from pytest_bandwidth.devices.numpy_arrays import resolve_dtype
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.domain.units import counted
from pytest_bandwidth.features.honest.arena import ALONE, CANDIDATE, REFERENCE
from pytest_bandwidth.features.honest.arena_inputs import MOST_CASES, Case, Parameter, Role, case_of
from pytest_bandwidth.features.honest.arrays import View, overlap
from pytest_bandwidth.features.honest.reference import compared
from pytest_bandwidth.fixture.bandwidth import Bandwidth
from pytest_bandwidth.fixture.input import CallArrays
from pytest_bandwidth.reports.text_safe import one_line

_LONGEST_FAILURE = 400
_PACKAGE = Path(__file__).parents[2]
FUNCTION, INPUTS = "run", "inputs"


class Child:
    """Be a pytest plugin that holds the request for the tests and reports their results.

    asked: `test`, `reference`, `candidate`, `cases`, `rtol`, `atol`, and the options of `main`. data: the file with the
    cases' arrays: the reference's process writes it, a candidate's process reads it.
    """

    def __init__(self, asked: Mapping[str, Any], answer: int, data: BinaryIO) -> None:
        self.asked, self._answer, self._data = asked, answer, data
        self.cases = [case_of(one["case"]) for one in asked["cases"] or ()]
        self._facts: dict[str, Any] = {}

    @pytest.fixture
    def child(self) -> Child:
        return self

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "number" in metafunc.fixturenames:
            metafunc.parametrize("number", range(len(self.cases)))

    def add(self, **facts: Any) -> None:
        """Add facts to the next report."""
        self._facts.update(facts)

    def report(self) -> None:
        """Send the facts to the parent process."""
        line = json.dumps({"token": self.asked["token"], **self._facts}) + "\n"
        self._facts = {}
        with open(self._answer, "ab", closefd=False) as stream:
            stream.write(line.encode())

    def keep(self, array: np.ndarray[Any, Any]) -> dict[str, Any]:
        """Write an array to the file for the candidates; return its place."""
        at = self._data.seek(0, os.SEEK_END)
        self._data.write(array.reshape(-1).view(np.uint8).data)
        self._data.flush()
        return {"dtype": array.dtype.name, "shape": array.shape, "at": at}

    def kept(self, place: Mapping[str, Any]) -> np.ndarray[Any, Any]:
        """Return an array that `keep` has written."""
        kind, shape = resolve_dtype(place["dtype"]), tuple(place["shape"])
        self._data.seek(place["at"])
        return np.fromfile(self._data, kind, prod(shape)).reshape(shape)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a test's outcomes and failure; send the report after its teardown."""
        if rows := vars(report).get("bandwidth_rows"):
            self.add(rows=[row["outcome"] for row in json.loads(rows)])
        if not report.passed and "failure" not in self._facts:
            self.add(failure=_failure_of(report), skipped=report.skipped)
        if report.when == "teardown":
            self.report()


def _failure_of(report: pytest.TestReport) -> str:
    """Return the message of a test's failure, or the reason of its skip, in one line."""
    if isinstance(report.longrepr, tuple):
        return one_line(str(report.longrepr[2]).removeprefix("Skipped: "), _LONGEST_FAILURE)
    crash = getattr(report.longrepr, "reprcrash", None)
    text = report.longreprtext if crash is None else crash.message
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["it failed"]
    line = " ".join(lines[: 1 + lines[0].endswith(":")])  # a compiler's log begins in the next line
    if crash is not None and _PACKAGE not in Path(crash.path).parents:
        line = f"{Path(crash.path).name}:{crash.lineno}: {line}"
    return one_line(line.removeprefix("Failed: ").partition(" (help: ")[0], _LONGEST_FAILURE)


def main(*descriptors: str) -> int:
    """Run the requested test; return the exit status. descriptors: of the request, the reports and the arrays."""
    question, answer, data = map(int, descriptors)
    with open(question, encoding="utf-8") as stream:
        stream.seek(0)
        asked = json.load(stream)
    for descriptor in (answer, data):
        os.set_inheritable(descriptor, False)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open(data, "r+b" if asked["candidate"] is None else "rb") as arrays:
        child = Child(asked, answer, arrays)
        if asked["limits_memory"]:
            more = available_bytes() if asked["memory"] is None else asked["memory"]
            with suppress(OSError, ValueError, IndexError):  # no limit where the process's memory is unknown
                pages = int(Path("/proc/self/statm").read_text().split()[0])
                if more is not None:
                    limit = pages * resource.getpagesize() + more
                    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        return pytest.main(
            [
                f"{__file__}::{asked['test']}",
                "-cpytest.ini",
                f"--rootdir={os.getcwd()}",
                "--noconftest",
                "--import-mode=importlib",
                "--assert=plain",
                "-s",
                *("-ppytest_bandwidth.plugin", "-pno:cacheprovider", "-pno:faulthandler", "-pno:terminal"),
                *asked["options"],
            ],
            plugins=[child],
        )


# ---- the tests: the reference's results, then a candidate's ----------------------------------------------------------


@pytest.mark.bandwidth(honest=True)
def test_reference(bandwidth: Bandwidth, child: Child) -> None:
    """Report each case with the reference's results, and time the reference alone."""
    side = _Side(child.asked["reference"])
    timed = not bandwidth.identity.counts_only
    for number, (given, inputs) in enumerate(_given(bandwidth, child, side)):
        case = given if child.asked["cases"] is not None else _with_roles(bandwidth, side, given, inputs)
        args = _arguments(bandwidth, case, inputs)
        before = [_on_host(array) for array in _of_roles(case, args, "in")]
        returned, written = side.work(bandwidth, case, args)(), _of_roles(case, args, "out", "inout")
        returns = bool(_returned(returned, written))
        expected = [_on_host(one) for one in _results(returned, written)]
        if not expected:
            raise UsageError(f"{case.name}: {side.name} returns no array and writes none, expected one at least")
        for parameter, old in zip(_parameters(case, "in"), before, strict=True):
            if not _same(_on_host(args[case.parameters.index(parameter)]), old):
                raise UsageError(f"{case.name}: {side.name} writes {parameter.name}, expected role out or inout for it")
        args = _arguments(bandwidth, case, inputs)
        again = _results(side.work(bandwidth, case, args)(), _of_roles(case, args, "out", "inout"))
        views = [View("", one, _on_host(one), None) for one in again]
        tolerance = child.asked["rtol"], child.asked["atol"]
        if compared(Reference(None, *tolerance), views, expected, None) is not None:
            remedy = "give it a seed, or --rtol and --atol that allow for it"
            raise UsageError(f"{case.name}: {side.name} gives another result the second time: {remedy}")
        child.add(
            case=asdict(case),
            inputs=[None if array is None else child.keep(array) for array in inputs],
            expected=[child.keep(array) for array in expected],
            returns=returns,
        )
        if timed:
            args = _arguments(bandwidth, case, inputs)
            check = Reference(tuple(map(bandwidth.xp.asarray, expected)), *tolerance)
            declared = _declared(case, args, expected, returns=returns)
            # In the same rounds as in a candidate's process: work that runs in between affects short times.
            work = side.work(bandwidth, case, args)
            bandwidth.compare({str(number): work, f"{number} again": work}, **declared, check=check)
        child.report()
    child.add(is_last=True)


@pytest.mark.bandwidth(honest=True)
def test_candidate(bandwidth: Bandwidth, child: Child, number: int) -> None:
    """Check and measure one case of a candidate; then time it and the reference in the same rounds."""
    case, asked = child.cases[number], child.asked["cases"][number]
    expected = tuple(child.kept(one) for one in asked["expected"])
    inputs = [None if one is None else child.kept(one) for one in asked["inputs"]]
    reference = _Side(child.asked["reference"])  # before any code of the candidate runs
    candidate = _Side(child.asked["candidate"])
    args = _arguments(bandwidth, case, inputs)
    value, written = candidate.work(bandwidth, case, args)(), _of_roles(case, args, "out", "inout")
    returned = _returned(value, written)
    if returned and not asked["returns"]:
        names = ", ".join(one.name for one in _parameters(case, "out", "inout"))
        raise UsageError(f"it returned what {reference.name} writes: expected it in {names}")
    if len(returned or written) != len(expected) and not isinstance(value, (int, float, complex)):
        nothing = f"{shown(value, 20)}, and was given {counted(len(written), 'array')} to write"
        found = counted(len(returned), "array") if returned else nothing
        raise UsageError(f"it returned {found}: expected {len(expected)}, as {reference.name} gives")
    returns = bool(returned)
    args = _arguments(bandwidth, case, inputs)
    known = [bandwidth.xp.asarray(one) for one in expected]

    def computed(*given: Any) -> list[Any]:
        """Return the results for these inputs; those of the reference's process if the inputs are the case's."""
        pairs = zip(case.parameters, given, inputs, strict=True)
        if all(_same(_on_host(arg), host) for one, arg, host in pairs if one.role in ("in", "inout")):
            return known
        return _results(reference.work(bandwidth, case, given)(), _of_roles(case, given, "out", "inout"))

    function: Any = getattr(reference.module, reference.function, None)
    is_own = getattr(getattr(function, "__code__", None), "co_filename", "") == str(reference.file)
    if is_own and (candidate.file, candidate.name) != (reference.file, reference.name):
        computed = functools.wraps(function)(computed)  # to detect calls of it
    tolerance = child.asked["rtol"], child.asked["atol"]
    declared = _declared(case, args, expected, returns=returns)
    candidate.measure(bandwidth, case, args, **declared, label=ALONE, check=Reference(computed, *tolerance))
    if bandwidth.identity.counts_only:
        return
    args = _arguments(bandwidth, case, inputs)  # in-place work has changed them
    declared = _declared(case, args, expected, returns=returns)
    both = {REFERENCE: reference.work(bandwidth, case, args), CANDIDATE: candidate.work(bandwidth, case, args)}
    taken = bandwidth.compare(both, **declared, check=Reference(tuple(known), *tolerance))
    samples = [*taken[REFERENCE].samples, *taken[CANDIDATE].samples]
    if samples and min(samples) > 0:  # else the verdict has the reason
        ratio = taken.ratio(CANDIDATE, over=REFERENCE)
        child.add(speed_up=ratio.value, low=ratio.low, high=ratio.high, rounds=ratio.rounds)


class _Side:
    """Hold one side, which `FILE::NAME` names: a function of a Python file, or a kernel of another file."""

    def __init__(self, spec: Mapping[str, str]) -> None:
        self.file = Path(spec["file"])
        self.is_kernel = self.file.suffix != ".py"
        self.function = spec["name"] or ("" if self.is_kernel else FUNCTION)
        self.name = f"{self.file.name}::{self.function}".removesuffix("::")
        self.module = None if self.is_kernel else _module(self.file)
        self._kernel: Any = None

    def work(self, bandwidth: Bandwidth, case: Case, args: Sequence[Any]) -> Callable[[], Any]:
        """Return the work on these arguments as a callable without parameters."""
        if self.is_kernel:
            return bandwidth.bind(*self._launch(bandwidth, case, args), shared_mem=case.shared_bytes)
        return functools.partial(self.entry(), *args)

    def measure(self, bandwidth: Bandwidth, case: Case, args: Sequence[Any], **keywords: Any) -> None:
        if self.is_kernel:
            bandwidth.launch(*self._launch(bandwidth, case, args), shared_mem=case.shared_bytes, **keywords)
        else:
            bandwidth(self.entry(), *args, **keywords)

    def _launch(self, bandwidth: Bandwidth, case: Case, args: Sequence[Any]) -> tuple[Any, Any, Any, tuple[Any, ...]]:
        if case.grid is None or case.block is None:
            raise UsageError(f"{case.name}: found no grid and block for {self.name}, expected --inputs with both")
        if self._kernel is None:
            self._kernel = bandwidth.kernel(self.file, self.function or None)
        return self._kernel, case.grid, case.block, tuple(args)

    def entry(self) -> Callable[..., Any]:
        """Return the function of a Python file. Raises UsageError if the file has no such function."""
        found: Callable[..., Any] | None = getattr(self.module, self.function, None)
        if not callable(found):
            raise UsageError(f"{self.file}: found no function {self.function}, expected FILE::NAME of one")
        return found


def _module(file: Path) -> ModuleType:
    """Load a file as a module that other modules cannot import by its name."""
    spec = importlib.util.spec_from_file_location(f"{file.stem}_{secrets.token_hex(4)}", file)
    if spec is None or spec.loader is None:
        raise UsageError(f"{file}: found no Python file, expected one")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # the file's dataclasses look it up
    sys.path.append(str(file.parent))
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise UsageError(f"{error.filename or file}:{error.lineno or 1}: {type(error).__name__}: {error.msg}") from None
    return module


def _given(bandwidth: Bandwidth, child: Child, side: _Side) -> Iterator[tuple[Case, Sequence[Any]]]:
    """Yield the cases of `--inputs`, else those that the reference's file yields, each with its inputs on the host.

    An input is None for an argument that is not an array, or is only written.
    """
    if child.asked["cases"] is not None:
        for case in child.cases:
            made = {
                one.name: _on_host(bandwidth.random(one.shape, one.dtype, distribution=one.distribution))
                for one in _parameters(case, "in", "inout")
            }
            yield case, [made.get(one.name) for one in case.parameters]
        return
    inputs = getattr(side.module, INPUTS, None)
    if not callable(inputs):
        raise UsageError(f"{side.file}: found no function {INPUTS}(bandwidth), expected it, or --inputs FILE")
    names: set[str] = set()
    for one in inputs(bandwidth):
        name, args = one if isinstance(one, tuple) and len(one) == 2 else (None, None)
        if not isinstance(name, str) or not isinstance(args, (tuple, list)) or len(names) >= MOST_CASES:
            wanted = f"expected up to {MOST_CASES} pairs: a name, and a tuple of arguments"
            raise UsageError(f"{side.file}: {INPUTS} yields {shown(one)}, {wanted}")
        if name in names:
            raise UsageError(f"{side.file}: {INPUTS} yields the name {shown(name)} again, expected one of its own")
        names.add(name)
        called = list(CallArrays(side.entry(), args, {}, len).arguments)
        known = called if len(called) >= len(args) else [f"args[{place}]" for place in range(len(args))]
        parameters = tuple(_described(bandwidth, *pair) for pair in zip(known, args, strict=False))
        pairs = zip(parameters, args, strict=True)
        yield Case(name, parameters), [None if one.role == "scalar" else _on_host(arg) for one, arg in pairs]


def _described(bandwidth: Bandwidth, name: str, arg: Any) -> Parameter:
    if isinstance(arg, bandwidth.xp.ndarray):
        return Parameter(name, "in", arg.dtype.name, tuple(arg.shape))
    if isinstance(arg, np.generic) and arg.dtype.kind in "biuf":
        return Parameter(name, "scalar", arg.dtype.name, value=arg.item())
    if arg is None or isinstance(arg, (bool, int, float, str)):
        return Parameter(name, "scalar", None, value=arg)
    raise UsageError(f"{INPUTS}: found a {type(arg).__name__} as {name}, expected an array of bandwidth.xp or a number")


def _with_roles(bandwidth: Bandwidth, side: _Side, case: Case, inputs: Sequence[Any]) -> Case:
    """Return the case with the roles of its arrays. A run of the function shows which arrays it writes.

    If a run with these poisoned gives the same results, they are outputs, else the function reads them as well.
    """

    def after(hosts: Sequence[Any]) -> list[Any]:
        args = _arguments(bandwidth, case, hosts)
        side.work(bandwidth, case, args)()
        return [None if host is None else _on_host(arg) for host, arg in zip(hosts, args, strict=True)]

    first = after(inputs)
    written = [host is not None and not _same(new, host) for host, new in zip(inputs, first, strict=True)]
    # No result has these bytes by accident.
    poisoned = [
        np.full(host.nbytes, 0xA5, np.uint8).view(host.dtype).reshape(host.shape) if w else host
        for host, w in zip(inputs, written, strict=True)
    ]
    again = after(poisoned)
    only_written = all(_same(one, other) for one, other, w in zip(first, again, written, strict=True) if w)
    role: Role = "out" if only_written else "inout"
    parameters = tuple(replace(p, role=role) if w else p for p, w in zip(case.parameters, written, strict=True))
    return replace(case, parameters=parameters)


def _arguments(bandwidth: Bandwidth, case: Case, inputs: Sequence[Any]) -> list[Any]:
    """Return a function's arguments, with new arrays on the device."""
    args = []
    for one, host in zip(case.parameters, inputs, strict=True):
        args.append(one.scalar() if one.role == "scalar" else bandwidth.empty(one.shape, one.dtype))
        if host is not None:
            args[-1][...] = bandwidth.xp.asarray(host)
    return args


def _declared(case: Case, args: Sequence[Any], expected: Sequence[Any], *, returns: bool) -> dict[str, Any]:
    """Return reads= and writes=: the arrays, or for returned results their bytes."""
    written = _of_roles(case, args, "out", "inout")
    writes = written if written and not returns else [sum(one.nbytes for one in expected)]
    return {"reads": tuple(_of_roles(case, args, "in", "inout")) or None, "writes": tuple(writes)}


def _parameters(case: Case, *roles: str) -> list[Parameter]:
    return [one for one in case.parameters if one.role in roles]


def _of_roles(case: Case, args: Sequence[Any], *roles: str) -> list[Any]:
    return [arg for one, arg in zip(case.parameters, args, strict=True) if one.role in roles]


def _returned(value: Any, written: Sequence[Any]) -> list[Any]:
    """Return the arrays that a run returned; [] if all of them are arrays that it wrote."""
    several = value if isinstance(value, (tuple, list)) else [value]
    # A NumPy number becomes an array without dimensions.
    found = [
        np.asarray(one) if isinstance(one, np.generic) else one
        for one in several
        if hasattr(one, "shape") and hasattr(one, "dtype")
    ]
    return [] if all(any(overlap(one, other) for other in written) for one in found) else found


def _results(value: Any, written: Sequence[Any]) -> list[Any]:
    """Return a run's results: the returned arrays, else the written ones."""
    return _returned(value, written) or list(written)


def _on_host(array: Any) -> Any:
    """Return a copy of an array as a NumPy array."""
    if hasattr(array, "cpu"):  # PyTorch's
        array = array.cpu()
    return np.array(array.get() if hasattr(array, "get") else array, order="C")


def _same(one: Any, other: Any) -> bool:
    return bool(np.array_equal(one.reshape(-1).view(np.uint8), other.reshape(-1).view(np.uint8)))
