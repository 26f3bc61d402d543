"""The host half of CUPTI's range profiler, which needs no GPU: chips, which metrics they have, in how many passes.

By ctypes on the wheel nvidia-cuda-cupti; the structures are those of its cupti_profiler_host.h.
"""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

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
