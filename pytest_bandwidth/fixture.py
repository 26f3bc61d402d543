"""What `bandwidth` offers a test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_bandwidth.devices.base import Dim, Launch, Workload
from pytest_bandwidth.devices.kernel_source import read_source
from pytest_bandwidth.domain.comparison import Comparison
from pytest_bandwidth.domain.doubled import with_doubled_batch
from pytest_bandwidth.domain.errors import BandwidthError, NotOnThisDevice, UsageError
from pytest_bandwidth.domain.measurement import DeviceIdentity, Measurement
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.running import BandwidthRun
from pytest_bandwidth.settings import MarkerOptions

LONGEST_LABEL = 200


class WorkloadFailed(BandwidthError):
    """The measured callable raised; the original exception is the cause."""


class Bandwidth:
    """Measures callables and kernel launches of one test.

    Every measurement is judged when the test's body has passed. `measurements` holds them by label.
    """

    def __init__(self, run: BandwidthRun, marker: MarkerOptions, test_file: Path) -> None:
        self._run = run
        self.marker = marker
        self._folders = (test_file.parent, run.root)
        self.measurements: dict[str | None, Measurement] = {}
        self.tags: dict[str, Any] = {}

    @property
    def device(self) -> str:
        """``cuda``, ``cpu`` or ``traffic``."""
        return self._run.device.identity.kind

    @property
    def identity(self) -> DeviceIdentity:
        """The device's name, memory, settings and facts."""
        return self._run.device.identity

    @property
    def xp(self) -> Any:
        """The array module of the device: cupy on a GPU, numpy on the host and the traffic device."""
        return self._run.device.xp

    def random(self, shape: int | Sequence[int], dtype: Any = "float32") -> Any:
        """An array of finite values with random mantissas (compressible data would flatter a GPU), fresh at every call.

        shape: an int or a sequence of ints; dtype: anything that NumPy takes. Raises OutOfMemory, UsageError.
        """
        return self._run.device.random(_shape(shape), dtype)

    def empty(self, shape: int | Sequence[int], dtype: Any = "float32") -> Any:
        """An array that the test is going to write; its content before is undefined. Raises OutOfMemory, UsageError."""
        return self._run.device.empty(_shape(shape), dtype)

    def kernel(
        self,
        source: str | Path,
        name: str | None = None,
        *,
        options: Sequence[str] = (),
        name_expressions: Sequence[str] = (),
    ) -> Any:
        """A CUDA kernel: a CuPy RawKernel on a GPU, its Numba twin on the host where it is a shipped one.

        source: a file (beside the test, in the root folder, or shipped in cuda_src/) or CUDA C++ text.
        name: the kernel's name, or the template instance that `name_expressions` lists; may be left out where the
        source has just one. options: for the compiler. Raises KernelError (no such file or kernel, with those that
        exist; or the compiler's log) and, on the host, NotOnThisDevice for other than shipped kernels: the test skips.
        """
        found = read_source(source, name, self._folders, options, name_expressions)
        return self._run.device.kernel(found)

    def bind(
        self,
        kernel: Any,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any],
        *,
        shared_mem: int = 0,
        stream: Any = None,
    ) -> Callable[[], object]:
        """A kernel launch as a callable without arguments, unmeasured: to run it once, or to measure several as one."""
        return self._run.device.launcher(_launch(kernel, grid, block, args, shared_mem), stream)

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
    ) -> Measurement:
        """Measures one kernel launch; `grid`, `block`, `args` and `shared_mem` (bytes) as CuPy's RawKernel takes them.

        reads, writes: what the launch has to move, as arrays (their nbytes), ints (bytes) or a Traffic model.
        flop: floating-point operations of one launch; precision: "fp32", "fp16-tensor", … (else the arrays' dtype).
        label: tells several measurements of one test apart. setup: runs, untimed, before each launch.
        doubled: does twice the work (see `bind`) and is sampled in the same rounds: where that takes hardly longer, the
        regime is overhead-bound. stream: the stream to launch on. Raises UsageError for arguments that the kernel would
        misread.
        """
        launch = _launch(kernel, grid, block, args, shared_mem)
        traffic, read_arrays, written_arrays = self._declared(reads, writes, flop)
        call = self._run.device.launcher(launch, stream)
        return self._measure(
            Workload(
                call,
                traffic,
                label=_label(label),
                setup=_callable_or_none("setup", setup),
                beside=_beside(doubled),
                stream=stream,
                launch=launch,
                blocks=self.marker.blocks,
                reads=read_arrays,
                writes=written_arrays,
                precision=precision or _precision((*read_arrays, *written_arrays)),
                flop_declared=_says_flop(reads, writes, flop),
            )
        )

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
        **kwargs: Any,
    ) -> Measurement:
        """Measures ``function(*args, **kwargs)``; keywords as in `launch`. The last return value is `.value`."""
        if not callable(function):
            raise UsageError(f"bandwidth(...): found a {type(function).__name__}, expected a callable")
        traffic, read_arrays, written_arrays = self._declared(reads, writes, flop)

        def call() -> Any:
            return function(*args, **kwargs)

        return self._measure(
            Workload(
                call,
                traffic,
                label=_label(label),
                setup=_callable_or_none("setup", setup),
                beside=_beside(doubled),
                stream=stream,
                reads=read_arrays,
                writes=written_arrays,
                precision=precision or _precision((*read_arrays, *written_arrays)),
                flop_declared=_says_flop(reads, writes, flop),
            )
        )

    def compare(
        self,
        functions: Mapping[str, Callable[[], Any]],
        *,
        reads: Any = None,
        writes: Any = None,
        flop: int | None = None,
        stream: Any = None,
    ) -> Comparison:
        """Samples several callables in the same rounds, so that a test can assert what one is worth over another.

        ``bandwidth.compare({"naive": f, "tiled": g}, reads=x, writes=y).ratio("tiled", over="naive").at_least(2.5)``.
        functions: by name, without arguments (see `bind`); all move what `reads` and `writes` declare, as in `launch`.
        Each is a measurement labelled with its name, judged like any other. Raises UsageError.
        """
        if not isinstance(functions, Mapping) or len(functions) < 2 or not all(map(callable, functions.values())):
            raise UsageError("compare: expected a mapping of names to two callables or more, each without arguments")
        names = [_label(name) or "" for name in functions]
        for name in names:
            self._refuse_second(name)
        traffic, read_arrays, written_arrays = self._declared(reads, writes, flop)
        workloads = [
            _told_apart(Workload(call, traffic, label=name))
            for name, call in zip(names, functions.values(), strict=True)
        ]
        together = replace(
            workloads[0],
            stream=stream,
            reads=read_arrays,
            writes=written_arrays,
            precision=_precision((*read_arrays, *written_arrays)),
            beside=tuple(w.call for w in workloads[1:]),
            flop_declared=_says_flop(reads, writes, flop),
        )
        first = self._run.measure(together, self.marker)
        found = {names[0]: first, **dict(zip(names[1:], _besides(first, names[1:]), strict=True))}
        self.measurements.update(found)
        return Comparison(found)

    def _measure(self, workload: Workload) -> Measurement:
        self._refuse_second(workload.label)
        measurement = with_doubled_batch(self._run.measure(_told_apart(workload), self.marker))
        self.measurements[workload.label] = measurement
        return measurement

    def _refuse_second(self, label: str | None) -> None:
        if label in self.measurements:
            name = "without a label" if label is None else f"labelled {label!r}"
            raise UsageError(f"two measurements {name} in one test: give each a label= of its own")

    def _declared(self, reads: Any, writes: Any, flop: int | None) -> tuple[Traffic, tuple[Any, ...], tuple[Any, ...]]:
        if reads is None and writes is None:
            raise UsageError(
                "neither reads= nor writes= is declared: name the arrays, bytes or Traffic that one run has to move"
            )
        if flop is not None and (isinstance(flop, bool) or not isinstance(flop, int) or flop < 0):
            raise UsageError(f"flop={flop!r}, expected a whole number that is not negative")
        read, read_arrays = self._side("reads", reads)
        written, written_arrays = self._side("writes", writes)
        traffic = read + written
        if flop is not None:
            traffic = replace(traffic, flop=flop)
        if traffic.bytes_moved == 0:
            raise UsageError("reads= and writes= add up to 0 bytes: a bandwidth needs at least one byte moved")
        return traffic, read_arrays, written_arrays

    def _side(self, name: str, declared: Any) -> tuple[Traffic, tuple[Any, ...]]:
        """One of reads= and writes=, added up, and its arrays."""
        parts = () if declared is None else declared if isinstance(declared, (tuple, list)) else (declared,)
        arrays = tuple(part for part in parts if not isinstance(part, (Traffic, int, float, str, bytes)))
        models = [part if isinstance(part, Traffic) else self._traffic_of(name, part) for part in parts]
        return (models[0] if len(models) == 1 else sum(models, Traffic(0, 0))), arrays

    def _traffic_of(self, name: str, part: Any) -> Traffic:
        if isinstance(part, (bool, float, str, bytes)):
            raise UsageError(f"{name}={part!r}, expected arrays, whole numbers of bytes, or a Traffic model")
        if isinstance(part, int) and part < 0:
            raise UsageError(f"{name}={part}, expected a number of bytes that is not negative")
        count = part if isinstance(part, int) else self._run.device.nbytes(part)
        return Traffic(count, 0) if name == "reads" else Traffic(0, count)


def _says_flop(reads: Any, writes: Any, flop: int | None) -> bool:
    """Whether the declaration says what is computed: by number, or by a model."""
    parts = (part for side in (reads, writes) for part in (side if isinstance(side, (tuple, list)) else (side,)))
    return flop is not None or any(isinstance(part, Traffic) for part in parts)


def _launch(
    kernel: Any, grid: int | Sequence[int], block: int | Sequence[int], args: Sequence[Any], shared_mem: int
) -> Launch:
    """The launch, its geometry checked."""
    if isinstance(args, (str, bytes)) or not isinstance(args, Sequence):
        raise UsageError(f"launch: args is a {type(args).__name__}, expected a tuple of the kernel's arguments")
    if isinstance(shared_mem, bool) or not isinstance(shared_mem, int) or shared_mem < 0:
        raise UsageError(f"launch: shared_mem={shared_mem!r}, expected bytes, 0 or more")
    return Launch(kernel, _dim("grid", grid), _dim("block", block), tuple(args), shared_mem)


def _shape(shape: int | Sequence[int]) -> int | tuple[int, ...]:
    dims = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(isinstance(d, bool) or not hasattr(d, "__index__") or int(d) < 0 for d in dims):
        raise UsageError(f"shape={shape!r}, expected a whole number or a sequence of them, not negative")
    return tuple(int(d) for d in dims)


def _dim(name: str, dim: int | Sequence[int]) -> Dim:
    dims = (dim,) if hasattr(dim, "__index__") else tuple(dim) if isinstance(dim, Sequence) else ()
    if not 1 <= len(dims) <= 3 or any(isinstance(d, bool) or not hasattr(d, "__index__") or int(d) < 1 for d in dims):
        raise UsageError(f"launch: {name}={dim!r}, expected one to three whole numbers, each at least 1")
    x, y, z = (*(int(d) for d in dims), 1, 1)[:3]
    return x, y, z


def _label(label: str | None) -> str | None:
    if label is None:
        return None
    if not isinstance(label, str) or not label.strip() or len(label) > LONGEST_LABEL or not label.isprintable():
        raise UsageError(f"label={label!r:.60}, expected printable text of 1 to {LONGEST_LABEL} characters")
    return label


def _callable_or_none(name: str, value: Any) -> Any:
    if value is not None and not callable(value):
        raise UsageError(f"{name}={value!r:.60}, expected a callable without arguments")
    return value


def _beside(doubled: Any) -> tuple[Callable[[], object], ...]:
    return () if _callable_or_none("doubled", doubled) is None else (doubled,)


_PRECISIONS = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def _precision(arrays: Sequence[Any]) -> str | None:
    """Precision of the first array whose dtype is floating point, as the peak tables name it."""
    for array in arrays:
        name = str(getattr(array, "dtype", "")).rsplit(".", 1)[-1]  # torch says torch.float32
        if name in _PRECISIONS:
            return _PRECISIONS[name]
    return None


def _besides(first: Measurement, names: Sequence[str]) -> list[Measurement]:
    """The measurements of those that were sampled beside the first."""
    rounds = first.rounds
    seconds = rounds.beside or ((),) * len(names)
    return [
        replace(
            first,
            label=name,
            rounds=replace(rounds, kernel_seconds=taken, host_kernel_seconds=(), beside=()),
            value=None,
        )
        for name, taken in zip(names, seconds, strict=True)
    ]


def _told_apart(workload: Workload) -> Workload:
    """The workload with its own exceptions as WorkloadFailed, so that they are not taken for the device's."""

    def guarded(what: str, call: Callable[[], object]) -> Callable[[], object]:
        def run() -> object:
            try:
                return call()
            except BandwidthError:
                raise
            except Exception as error:  # whatever a user's callable may raise
                text = " ".join(str(error).split())[:400]
                raise WorkloadFailed(f"{what} raised {type(error).__name__}: {text}") from error

        return run

    name = f" ({workload.label})" if workload.label else ""
    setup = None if workload.setup is None else guarded(f"setup{name}", workload.setup)
    beside = tuple(guarded(f"the callable beside it{name}", other) for other in workload.beside)
    return replace(workload, call=guarded(f"the measured callable{name}", workload.call), setup=setup, beside=beside)


def refuse_other_devices(marker: MarkerOptions, run: BandwidthRun) -> None:
    """Raises NotOnThisDevice where the marker asks for another kind of device."""
    if marker.device is None or marker.device == "auto":
        return
    kind = run.device.identity.kind
    if marker.device.partition(":")[0] != kind:
        raise NotOnThisDevice(f"the test asks for device {marker.device!r}, this run measures on {kind!r}")
