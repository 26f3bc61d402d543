"""The names that we ask each chip for exist there, and are counted in one pass: CUPTI's host library says so.

It needs no GPU: the host half of CUPTI's range profiler, by ctypes on the wheel nvidia-cuda-cupti. The structures are
those of its cupti_profiler_host.h.
"""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from pytest_bandwidth.features.counters.dram_traffic import CountersFailed
from pytest_bandwidth.features.counters.tables import metrics_of

# CUDA C++ Programming Guide, "Compute Capabilities", and the chips of NVIDIA's open kernel modules.
CAPABILITIES = {
    "GV100": "7.0",
    "GV11B": "7.2",
    **dict.fromkeys(["TU102", "TU104", "TU106", "TU116", "TU117"], "7.5"),
    "GA100": "8.0",
    **dict.fromkeys(["GA102", "GA103", "GA104", "GA106", "GA107"], "8.6"),
    "GA10B": "8.7",
    **dict.fromkeys(["AD102", "AD103", "AD104", "AD106", "AD107"], "8.9"),
    "GH100": "9.0",
    **dict.fromkeys(["GB100", "GB102"], "10.0"),
    "GB110": "10.3",
    "GB10B": "11.0",
    **dict.fromkeys(["GB202", "GB203", "GB205", "GB206", "GB207"], "12.0"),
    "GB20B": "12.1",
}
RANGE_PROFILER = 0


class CuptiError(Exception):
    """A call's result is not CUPTI_SUCCESS."""


def _params(*fields: tuple[str, type]) -> type[ctypes.Structure]:
    return type(
        "Params", (ctypes.Structure,), {"_fields_": [("size", ctypes.c_size_t), ("priv", ctypes.c_void_p), *fields]}
    )


_CHIPS = _params(("count", ctypes.c_size_t), ("names", ctypes.POINTER(ctypes.c_char_p)))
_OPEN = _params(
    ("kind", ctypes.c_int),
    ("chip", ctypes.c_char_p),
    ("availability", ctypes.c_void_p),
    ("host", ctypes.c_void_p),
)
_CLOSE = _params(("host", ctypes.c_void_p))
_ADD = _params(("host", ctypes.c_void_p), ("names", ctypes.POINTER(ctypes.c_char_p)), ("count", ctypes.c_size_t))
_IMAGE_SIZE = _params(("host", ctypes.c_void_p), ("image_size", ctypes.c_size_t))
_IMAGE = _params(("host", ctypes.c_void_p), ("image_size", ctypes.c_size_t), ("image", ctypes.c_void_p))
_PASSES = _params(("image_size", ctypes.c_size_t), ("image", ctypes.c_void_p), ("passes", ctypes.c_size_t))


class CuptiHost:
    """The library of the installed wheel. Raises ModuleNotFoundError where there is none."""

    def __init__(self) -> None:
        spec = find_spec("nvidia")
        folders = [] if spec is None else [Path(folder) for folder in spec.submodule_search_locations or ()]
        found = [library for folder in folders for library in folder.glob("cu*/lib/libcupti.so.*")]
        if not found:
            raise ModuleNotFoundError("no libcupti: pip install nvidia-cuda-cupti")
        ctypes.CDLL(str(found[0].with_name("libnvperf_host.so")), mode=ctypes.RTLD_GLOBAL)
        self._library = ctypes.CDLL(str(found[0]))

    def chips(self) -> list[str]:
        """Return the chips' names: GA100, GH100, …"""
        told = self._call("GetSupportedChips", _CHIPS())
        return [told.names[i].decode() for i in range(told.count)]

    def passes(self, chip: str, metrics: Sequence[str]) -> int:
        """Return in how many passes the metrics are counted together. Raises CuptiError for one that there is not."""
        with self._opened(chip) as host:
            names = (ctypes.c_char_p * len(metrics))(*(name.encode() for name in metrics))
            self._call("ConfigAddMetrics", _ADD(host=host, names=names, count=len(metrics)))
            size = self._call("GetConfigImageSize", _IMAGE_SIZE(host=host)).image_size
            image = ctypes.create_string_buffer(size)
            at = ctypes.addressof(image)
            self._call("GetConfigImage", _IMAGE(host=host, image_size=size, image=at))
            return self._call("GetNumOfPasses", _PASSES(image_size=size, image=at)).passes

    @contextmanager
    def _opened(self, chip: str) -> Iterator[int]:
        host = self._call("Initialize", _OPEN(kind=RANGE_PROFILER, chip=chip.encode())).host
        try:
            yield host
        finally:
            self._call("Deinitialize", _CLOSE(host=host))

    def _call(self, name, params):
        params.size = ctypes.sizeof(params)
        result = getattr(self._library, f"cuptiProfilerHost{name}")(ctypes.byref(params))
        if result != 0:
            raise CuptiError(f"{name}: {result}")
        return params


@pytest.fixture(scope="module")
def cupti() -> CuptiHost:
    try:
        return CuptiHost()
    except (ModuleNotFoundError, OSError) as reason:
        pytest.skip(str(reason))


def test_every_chip_that_the_library_knows_is_here(cupti: CuptiHost) -> None:
    assert sorted(cupti.chips()) == sorted(CAPABILITIES)


@pytest.mark.parametrize("chip", CAPABILITIES)
def test_all_of_a_chips_names_are_counted_in_one_pass(cupti: CuptiHost, chip: str) -> None:
    try:
        names = metrics_of(CAPABILITIES[chip]).names
    except CountersFailed:
        for spelling in ("", "op_"):
            with pytest.raises(CuptiError):
                cupti.passes(chip, [f"dram__bytes_{spelling}read.sum"])
        return
    assert cupti.passes(chip, names) == 1


@pytest.mark.parametrize(
    ("capability", "said"),
    [
        ("6.1", "counts from compute capability 7.0 on, this GPU has 6.1"),
        ("8.7", "this chip (compute capability 8.7) has no counters of DRAM"),
        ("None", "found compute capability 'None'"),
    ],
)
def test_chips_without_counters(capability: str, said: str) -> None:
    with pytest.raises(CountersFailed) as caught:
        metrics_of(capability)
    assert said in str(caught.value)
