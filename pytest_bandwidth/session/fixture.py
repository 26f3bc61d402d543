"""Offer a test the fixture `bandwidth`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pytest_bandwidth.devices.base import BoundLaunch, Launch, Workload
from pytest_bandwidth.devices.code.callables import call_digest, callable_code
from pytest_bandwidth.devices.code.compiled import compiled_resources
from pytest_bandwidth.devices.code.held import arguments_told, held_by
from pytest_bandwidth.devices.code.launch import launch_digest
from pytest_bandwidth.devices.kernel_source import read_source
from pytest_bandwidth.domain.code.file_list import FileList
from pytest_bandwidth.domain.code.identity import MeasuredCode
from pytest_bandwidth.domain.code.kernel_signature import parameter_names
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import NotOnThisDevice, UsageError
from pytest_bandwidth.domain.judging.limits import floors_of
from pytest_bandwidth.domain.judging.marker import MarkerOptions
from pytest_bandwidth.domain.measured.comparison import Comparison
from pytest_bandwidth.domain.measured.measurement import CODE_UNKNOWN, NO_GRAPHS, Finding, Measurement
from pytest_bandwidth.domain.measured.regime import ridge_of, with_doubled_batch, with_regime
from pytest_bandwidth.domain.measured.roofline import ridge_point
from pytest_bandwidth.domain.measured.validity import interleaved_measurement
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.domain.traffic.explanation import EXPLAINED, MATERIALISED, Explanation
from pytest_bandwidth.frameworks.arrays import arrays_in
from pytest_bandwidth.frameworks.compiling import recompiled
from pytest_bandwidth.frameworks.explain import explained
from pytest_bandwidth.frameworks.waiting import awaited
from pytest_bandwidth.session.against.told_code import NOTHING_TOLD, Told, is_told
from pytest_bandwidth.session.measuring.inputs import Inputs
from pytest_bandwidth.session.measuring.measuring_run import MeasuringRun
from pytest_bandwidth.session.measuring.progress import Progress
from pytest_bandwidth.session.read_files.listing import FilesUnknown
from pytest_bandwidth.session.read_files.opened import watching
from pytest_bandwidth.session.user.call_arrays import CallArrays
from pytest_bandwidth.session.user.errors import with_named_errors
from pytest_bandwidth.session.user.input import (
    UNDECLARED,
    Declaration,
    checked_callable,
    checked_code,
    checked_label,
    checked_launch,
    checked_opaque,
    checked_shape,
    checked_switch,
    declared,
    precision_of,
    refuse_beside_graph,
    refuse_near_misses,
    refuse_setup_beside_graph,
    refuse_unlabelled,
    refuse_used_up,
)

NO_GRAPH = Finding(NO_GRAPHS, "graph=True changes nothing here: only a GPU has graphs")
# Where no test runs, nothing shows progress.
_UNSEEN = Progress()


def _no_files() -> None:
    """List no files: where no test runs."""


class Bandwidth:
    """Measure callables and kernel launches of one test.

    Every measurement is judged when the test's body has passed. `measurements` holds them by label.
    """

    def __init__(
        self,
        run: MeasuringRun,
        marker: MarkerOptions,
        test_file: Path,
        progress: Progress = _UNSEEN,
        test: Callable[..., object] | None = None,
        told: Told = NOTHING_TOLD,
        read: Callable[[], FileList | None] = _no_files,
    ) -> None:
        self._run = run
        self.marker = marker
        self.progress = progress
        self._test = test
        self._told = told
        self._read = read
        self._folders = (test_file.parent, run.root)
        # Each with its kernel: an id is only its own while it lives.
        self._sources: dict[int, tuple[Any, str, str]] = {}
        self.measurements: dict[str | None, Measurement] = {}
        self.tags: dict[str, Any] = {}
        # Whether the test called for a measurement: one whose error the test caught leaves nothing to judge.
        self.called = False
        # Once the test is over nothing judges what is measured.
        self.ended = False

    @property
    def device(self) -> str:
        """Return ``cuda``, ``cpu``, ``tinygrad`` or ``traffic``."""
        return self._run.device.identity.kind

    @property
    def identity(self) -> DeviceIdentity:
        """Return the device's name, memory, settings and facts."""
        return self._run.device.identity

    @property
    def xp(self) -> Any:
        """Return the array module of the device: cupy on a GPU, numpy on the host and the traffic device.

        On tinygrad's backends it is the module tinygrad, for its Tensor, TinyJit and dtypes.
        """
        return self._run.device.xp

    def random(self, shape: int | Sequence[int], dtype: Any = "float32") -> Any:
        """Make an array of finite values with random mantissas (GPUs compress others), fresh at every call.

        On the traffic device they are the same in every run of a test, since counts may depend on them.
        shape: an int or a sequence of ints; dtype: anything that NumPy takes. Raises OutOfMemory, UsageError.
        """
        return self._run.device.random(checked_shape(shape), dtype)

    def empty(self, shape: int | Sequence[int], dtype: Any = "float32") -> Any:
        """Return an array that the test is going to write; its content before is undefined.

        Raises OutOfMemory, UsageError.
        """
        return self._run.device.empty(checked_shape(shape), dtype)

    def kernel(
        self,
        source: str | Path,
        name: str | None = None,
        *,
        options: Sequence[str] = (),
        name_expressions: Sequence[str] = (),
    ) -> Any:
        """Return a CUDA kernel: a CuPy RawKernel on a GPU, its Numba twin on the host where it is a shipped one.

        source: a file (beside the test, in the root folder, or shipped in cuda_src/) or CUDA C++ text.
        name: the kernel's name, or the template instance that `name_expressions` lists; may be left out where the
        source has just one. options: for the compiler. Raises KernelError (no such file or kernel, with those that
        exist; or the compiler's log) and, on the host, NotOnThisDevice for other than shipped kernels: the test skips.
        """
        found = read_source(source, name, self._folders, options, name_expressions)
        if found.file is not None and (files := watching()) is not None:
            files.note(str(found.file))
        kernel = self._run.device.kernel(found)
        self._sources[id(kernel)] = kernel, found.text, found.name
        return kernel

    def bind(
        self,
        kernel: Any,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any],
        *,
        shared_mem: int = 0,
        stream: Any = None,
        opaque: Any = None,
    ) -> Callable[[], object]:
        """Return an unmeasured launch as a callable without arguments: to run it once, or to measure several as one.

        Measured by itself, or by a function that calls several, it tells its kernel's code; keywords as in `launch`.
        """
        launch = self._launch_of(kernel, grid, block, args, shared_mem, opaque)
        return BoundLaunch(launch, stream, self._run.device.launcher(launch, stream))

    def launch(
        self,
        kernel: Any,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any],
        *,
        reads: Any = None,
        writes: Any = None,
        flop: int | None = None,
        precision: str | None = None,
        label: str | None = None,
        setup: Callable[[], object] | None = None,
        doubled: Callable[[], object] | None = None,
        shared_mem: int = 0,
        stream: Any = None,
        graph: bool = False,
        opaque: Any = None,
    ) -> Measurement:
        """Measure one kernel launch; `grid`, `block`, `args` and `shared_mem` (bytes) as CuPy's RawKernel takes them.

        reads, writes: what the launch has to move, as arrays (their nbytes), ints (bytes) or a Traffic model.
        flop: floating-point operations of one launch; precision: "fp32", "fp16-tensor", … (else the arrays' dtype).
        label: tells several measurements of one test apart. setup: runs, untimed, before each launch.
        doubled: does twice the work (see `bind`) and is sampled in the same rounds: where that takes hardly longer, the
        regime is overhead-bound. stream: the stream to launch on.
        graph: on a GPU, capture several launches into a CUDA graph, each on a copy of the arrays, and time its replay:
        for kernels so short that their launch takes longer. Elsewhere it changes nothing. Not with setup or doubled.
        opaque: arguments (by place, from 0, or by name) and fields of structs that are no part of what identifies the
        launch, such as a seed.
        Raises UsageError for arguments that the kernel would misread, and where CUDA captures no graph of it.
        """
        self.called = True
        refuse_beside_graph(graph, setup, doubled)
        launch = self._launch_of(kernel, grid, block, args, shared_mem, opaque)
        declaration = self._declared(reads, writes, flop, precision)
        call = self._run.device.launcher(launch, stream)
        workload = self._workload(declaration, call, label, setup, doubled, stream)
        whole = replace(workload, launch=launch, blocks=self.marker.blocks, graph=graph)
        measured = self._measure(whole, lambda: self._launch_code(launch), arguments_told(launch))
        self.measurements[workload.label] = measured = self._graph_told(measured, graph)
        return measured

    def __call__(
        self,
        function: Callable[..., Any],
        *args: Any,
        reads: Any = None,
        writes: Any = None,
        flop: int | None = None,
        precision: str | None = None,
        label: str | None = None,
        setup: Callable[[], object] | None = None,
        doubled: Callable[[], object] | None = None,
        stream: Any = None,
        graph: bool = False,
        code: Any = None,
        opaque: Any = None,
        explain: bool = False,
        **kwargs: Any,
    ) -> Measurement:
        """Measure ``function(*args, **kwargs)``; keywords as in `launch`. The last return value is `.value`.

        reads, writes: also "args", the arrays among the arguments, "result", those in what it returns (it runs once
        more to tell), or names of its parameters; each with the containers in it, each byte once.
        graph: on a GPU, capture one run of it into a CUDA graph and time its replay, for work of many short kernels;
        `doubled` gets a graph, too. Elsewhere it changes nothing. Not with setup. Raises UsageError where it cannot be
        captured: what waits for the GPU or copies to the host, PyTorch's tensors.
        code: what identifies its machine code: an extension module or the Path of a library, whose kernels are hashed;
        bytes, such as a cubin, or text; or the compiled kernel that a launch of Triton's returns, whose registers and
        spills are noted, too. Where a baseline has the same code, nothing has regressed. Numba functions need none.
        opaque: as in `launch`; of keywords their names.
        explain: run it once more, untimed, as `explain` does: where its operators move other bytes than are declared, a
        finding says so. The figure stays that of the declared bytes.
        """
        self.called = True
        if not callable(function):
            raise UsageError(f"bandwidth(...): found an object of type {type(function).__name__}, expected a callable")
        refuse_setup_beside_graph(graph, setup)
        refuse_near_misses(kwargs, reads, writes)
        said = checked_code(code)

        def call() -> Any:
            return function(*args, **kwargs)

        arrays = CallArrays(function, args, kwargs, self._run.device.nbytes)
        call, stream = self._awaited(call, arrays.arguments, stream, graph)
        undeclared = self._workload(UNDECLARED, call, label, setup, doubled, stream)
        returned: list[object] = []

        def result() -> object:
            if not returned:
                returned.append(self._run.value_of(with_named_errors(undeclared), self.progress))
            return returned[0]

        declaration = self._declared(*arrays.declared(reads, writes, result), flop, precision)
        refuse_used_up(args, kwargs)
        workload = self._workload(declaration, call, label, setup, doubled, stream, graph)
        if returned and self._run.runs_once:
            workload = replace(workload, call=result, setup=None)
        else:
            returned.clear()  # it may be large
        hidden = checked_opaque(opaque, args, kwargs, arrays.places)
        told = [*(one for place, one in arrays.given.items() if place not in hidden), *held_by(function)]
        explains = checked_switch("explain", explain) and not self._run.runs_once and not self._run.counts
        # Before it is measured: what is measured may use up its arguments.
        explanation = explained(function, args, kwargs) if explains else None
        whole = self._beside_nothing(_of_launch(workload, function, self.marker.blocks))
        measured = self._measure(whole, lambda: self._code_of(function, args, kwargs, said, hidden), told)
        resources = measured.resources or compiled_resources(code)
        measured = _with_explanation(replace(measured, resources=resources), explanation)
        measured = self._graph_told(measured, graph)
        self.measurements[workload.label] = measured
        return measured

    def explain(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
        """Run ``function(*args, **kwargs)`` once, untimed, and say what its operators move, in bytes.

        PyTorch's operators, tinygrad's kernels, or the equations that JAX traces. ``str()`` of the answer is a sentence
        and a line for each; `.least_bytes` is what one fused operator would move, `.intermediates` the bytes of what is
        made on the way. Nothing is judged by it. Raises UsageError where no operator runs, and what the function
        raises.
        """
        found = explained(function, args, kwargs)
        precision = precision_of([array for _, array in arrays_in((args, kwargs), "an argument")])
        peak = self._run.peak
        flops = self._run.device.peak_flops(precision) if precision and peak is not None else None
        return found if not flops or peak is None else found.under(ridge_point(flops, peak.bytes_per_second))

    def compare(
        self,
        functions: Mapping[str, Callable[[], Any]],
        *,
        reads: Any = None,
        writes: Any = None,
        flop: int | None = None,
        stream: Any = None,
        graph: bool = False,
    ) -> Comparison:
        """Sample several callables in the same rounds, so that a test can assert what one is worth over another.

        ``bandwidth.compare({"naive": f, "tiled": g}, reads=x, writes=y).ratio("tiled", over="naive").at_least(2.5)``.
        functions: by name, without arguments (see `bind`); all move what `reads` and `writes` declare, as in `launch`.
        graph: on a GPU, time each from a CUDA graph of its own, as for one callable.
        Each is a measurement labelled with its name, judged like any other. Raises UsageError.
        """
        self.called = True
        if not isinstance(functions, Mapping) or len(functions) < 2 or not all(map(callable, functions.values())):
            raise UsageError("compare: expected a mapping of names to two callables or more, each without arguments")
        checked_switch("graph", graph)
        names = [checked_label(name) or "" for name in functions]
        for name in names:
            self._refuse_second(name)
        declaration = self._declared(reads, writes, flop, None)
        held = (one for function in functions.values() for one in held_by(function))
        inputs = self._run.inputs_of(held, declaration.workload(_nothing, None), self.progress)
        workloads = [
            with_named_errors(declaration.workload(self._awaited(call, {}, stream, graph)[0], name))
            for name, call in zip(names, functions.values(), strict=True)
        ]
        others = tuple(other.call for other in workloads[1:])
        first_of = self._beside_nothing(workloads[0])
        together = replace(first_of, stream=stream, interleaved=others, spoilt=recompiled(), graph=graph)
        if self._run.counts:  # each by itself: the others are no part of what it moves
            taken = tuple(self._run.measure(workload, self.marker, self.progress) for workload in workloads)
        else:
            first = self._run.measure(together, self.marker, self.progress)
            taken = (first, *_besides(first, names[1:]))
        found = {
            name: self._graph_told(self._with_code(with_regime(one), partial(self._code_of, function), inputs), graph)
            for name, function, one in zip(names, functions.values(), taken, strict=True)
        }
        self.measurements.update(found)
        return Comparison(found)

    def _graph_told(self, measured: Measurement, graph: bool) -> Measurement:
        """Return a measurement that says so where it was to be from a graph, and the device has none."""
        if not graph or self.identity.on_gpu or self._run.runs_once:
            return measured
        return measured.with_finding(NO_GRAPH)

    def _awaited(
        self, call: Callable[[], Any], given: Mapping[str, object], stream: Any, graph: bool = False
    ) -> tuple[Callable[[], Any], Any]:
        """Have the call wait for what its framework computes later, and take place on its framework's stream."""
        identity = self._run.device.identity
        if identity.counts_only:
            return call, stream
        return awaited(call, given, stream, on_gpu=identity.on_gpu, graph=graph, backend=identity.tinygrad_device)

    def _beside_nothing(self, workload: Workload) -> Workload:
        """Let a host tell a callable that does nothing by what calling one takes in the same way."""
        if not self.identity.on_host or workload.launch is not None:
            return workload
        return replace(workload, nothing=self._awaited(_call_nothing, {}, None)[0])

    def _declared(self, reads: Any, writes: Any, flop: int | None, precision: str | None) -> Declaration:
        return declared(reads, writes, flop, precision, self._run.device.nbytes)

    def _workload(
        self,
        declaration: Declaration,
        call: Callable[[], object],
        label: str | None,
        setup: Callable[[], object] | None,
        doubled: Callable[[], object] | None,
        stream: Any,
        graph: bool = False,
    ) -> Workload:
        return replace(
            declaration.workload(call, checked_label(label)),
            setup=checked_callable("setup", setup),
            interleaved=()
            if doubled is None
            else (self._awaited(checked_callable("doubled", doubled), {}, stream, graph)[0],),
            stream=stream,
            spoilt=recompiled(),
            graph=graph,
        )

    def _measure(self, workload: Workload, code: Callable[[], MeasuredCode], given: Iterable[object]) -> Measurement:
        """Measure, unless the code is known to be that of the revision that the run is judged by.

        given: the arguments that are part of what identifies it.
        """
        self._refuse_second(workload.label)
        named = with_named_errors(workload)
        inputs = self._run.inputs_of(given, named, self.progress)
        measurement = self._same_elsewhere(named, code, inputs)
        if measurement is None:
            measured = self._run.measure(named, self.marker, self.progress)
            measurement = self._with_code(with_regime(with_doubled_batch(measured)), code, inputs)
        self.measurements[workload.label] = measurement
        return measurement

    def _same_elsewhere(
        self, workload: Workload, code: Callable[[], MeasuredCode], inputs: Inputs
    ) -> Measurement | None:
        """Run code that the other revision runs as well once, untimed; None where it may differ, or has to be measured.

        Floors of the marker are held against figures, and counts are taken on this side in any case.
        """
        row = self._told.get(workload.label)
        if row is None or floors_of(self.marker) or self._run.device.identity.counts_only:
            return None
        untimed = self._with_code(self._run.measure(workload, self.marker, self.progress, untimed=True), code, inputs)
        return untimed if is_told(untimed, row) else None

    def _with_code(self, measurement: Measurement, code: Callable[[], MeasuredCode], inputs: Inputs) -> Measurement:
        """Identify what ran, after it did: what compiles at its first call is compiled by then."""
        if not self._run.identifies_code:
            return measurement
        found = inputs.of(code())
        measurement = replace(measurement, code=found.identity, ptx=found.ptx, cubin=found.cubin, files=found.files)
        if found.unknown is None:
            return measurement
        return measurement.with_finding(Finding(CODE_UNKNOWN, f"its code is not known: {found.unknown}"))

    def _code_of(
        self,
        function: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] = MappingProxyType({}),
        said: bytes | str | None = None,
        opaque: Collection[int | str] = (),
    ) -> MeasuredCode:
        """Identify what is called: a bound launch by its kernel. said: what the test says of it."""
        device = self._run.device
        if isinstance(function, BoundLaunch) and said is None:
            return self._launch_code(function.launch)
        found = callable_code(function, args, kwargs, said, device, opaque)
        return self._by_files(found, lambda: call_digest(function, args, kwargs, device, opaque))

    def _launch_of(
        self,
        kernel: Any,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any],
        shared_mem: int,
        opaque: Any,
    ) -> Launch:
        """Return a launch, checked; what is opaque by the names that the kernel's source has for its parameters."""
        launch = checked_launch(kernel, grid, block, args, shared_mem)
        if opaque is None:
            return launch
        _, text, name = self._sources.get(
            id(kernel), (None, getattr(kernel, "code", None), getattr(kernel, "name", ""))
        )
        names = parameter_names(text, name, len(launch.args)) if isinstance(text, str) else ()
        places = {name: place for place, name in enumerate(names)}
        return replace(launch, opaque=checked_opaque(opaque, launch.args, {}, places))

    def _launch_code(self, launch: Launch) -> MeasuredCode:
        return self._by_files(self._run.device.code(launch), lambda: launch_digest(launch))

    def _by_files(self, found: MeasuredCode, launch: Callable[[], str]) -> MeasuredCode:
        """Identify code that nothing tells more finely by the files that its process read. launch: hashes the call."""
        known = found.identity
        finely = known.ptx is not None or known.sass is not None or known.function is not None
        if finely or self._run.device.identity.counts_only:
            return found
        try:
            read = self._read()
        except FilesUnknown as why:
            return replace(found, unknown=f"{found.unknown}; {why}" if found.unknown else str(why))
        if read is None:
            return found
        identity = replace(known, function=read.name(), launch=known.launch or launch())
        return replace(found, identity=identity, files=read.text(), unknown=None)

    def _refuse_second(self, label: str | None) -> None:
        if self.ended:
            raise UsageError(
                "the test that this bandwidth fixture belongs to has ended, and with it what is judged: "
                "measure in the test or in a fixture's set-up, and ask for the fixture in each test"
            )
        if label is None and self._test is not None:
            refuse_unlabelled(self._test)
        if label in self.measurements:
            name = "without a label" if label is None else f"labelled {shown(label)}"
            raise UsageError(f"two measurements {name} in one test: give each a label= of its own")


def _nothing() -> None:
    """Do nothing."""


def _call_nothing() -> None:
    """Call what does nothing as `Bandwidth` calls a function of the user's."""
    _nothing()


def _of_launch(workload: Workload, function: Callable[..., Any], blocks: int | None) -> Workload:
    """Return the workload with its launch, where its callable is one, bound to the stream that it is measured on.

    blocks: as in `Workload`, for a launch.
    """
    if not isinstance(function, BoundLaunch) or function.stream is not workload.stream or workload.graph:
        return workload
    return replace(workload, launch=function.launch, blocks=blocks)


def _besides(first: Measurement, names: Sequence[str]) -> list[Measurement]:
    """Return the measurements of those that were sampled beside the first."""
    if not first.rounds.interleaved:  # nothing was timed
        return [replace(first, label=name, value=None) for name in names]
    return [interleaved_measurement(first, *one) for one in zip(names, first.rounds.interleaved, strict=True)]


def _with_explanation(measurement: Measurement, explanation: Explanation | None) -> Measurement:
    """Add what the callable's operators move, and a finding where that is not what was declared."""
    if explanation is None:
        return measurement
    ridge = ridge_of(measurement)
    found = explanation if ridge is None else explanation.under(ridge.point)
    told = replace(measurement, detail={**measurement.detail, EXPLAINED: found.to_plain()})
    difference = found.differs(measurement.bytes_moved)
    return told if difference is None else told.with_finding(Finding(MATERIALISED, difference))


def refuse_other_devices(marker: MarkerOptions, identity: DeviceIdentity) -> None:
    """Raise NotOnThisDevice where the marker asks for another kind of device."""
    if marker.device is None or marker.device == "auto":
        return
    if marker.device.partition(":")[0] != identity.kind:
        raise NotOnThisDevice(f"the test asks for device {marker.device!r}, this run measures on {identity.kind!r}")
    _, _, backend = marker.device.partition(":")
    measured = identity.tinygrad_device
    if backend and measured is not None and backend.upper().removesuffix(":0") != measured:
        raise NotOnThisDevice(f"the test asks for device {marker.device!r}, this run measures on 'tinygrad:{measured}'")
