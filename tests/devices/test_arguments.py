"""Arguments that a raw kernel would misread are refused, with the remedy."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gpu_model import Array

from pytest_bandwidth.devices.arguments import (
    GpuArrays,
    checked_arguments,
    checked_shape,
    device_nbytes,
    misread_arrays,
)
from pytest_bandwidth.domain.errors import UsageError

# An address without a device of its own lies on the fourth GPU.
CUPY = SimpleNamespace(
    ndarray=Array,
    from_dlpack=lambda foreign: Array(foreign.memory, foreign.device),
    cuda=SimpleNamespace(runtime=SimpleNamespace(pointerGetAttributes=lambda _: SimpleNamespace(device=3))),
)
GPU = GpuArrays(CUPY, 0)


class Foreign:
    """An array of another library, as torch's are: it offers DLPack and the CUDA array interface."""

    def __init__(self, memory: Any, kind: int = 2, device: int = 0) -> None:
        self.memory, self.kind, self.device, self.nbytes = memory, kind, device, memory.nbytes

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.kind, self.device)


class NumbaLike:
    """An array that offers the CUDA array interface only."""

    def __init__(self, shape: tuple[int, ...], typestr: str, address: int = 4096) -> None:
        self.__dict__["interface"] = {"shape": shape, "typestr": typestr, "data": (address, False), "version": 3}

    @property
    def __cuda_array_interface__(self) -> Any:
        return self.__dict__["interface"]


def on_gpu(*shape: int, device: int = 0) -> Array:
    return Array(np.zeros(shape, np.float32), device)


@pytest.mark.parametrize(
    "args",
    [
        (on_gpu(4), np.float32(3), np.float64(3), np.int32(1), 7, True, None),
        (on_gpu(8, 8)[2:4], Array(np.zeros((4, 5)).T)),  # F order: no gaps, the kernel sees all of it
        (np.zeros(1, np.dtype([("a", np.int32), ("b", np.float32)])), np.array(3, np.float32)),  # by value
    ],
)
def test_what_a_kernel_reads_as_it_is_passes_unchanged(args: tuple[Any, ...]) -> None:
    assert checked_arguments(args, GPU) == args
    memory = np.arange(4.0)
    (adopted,) = checked_arguments((Foreign(memory),), GPU)
    assert isinstance(adopted, Array), "another library's"
    assert adopted.data.ptr == memory.ctypes.data


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((on_gpu(4), 3.0), r"argument 2 is the bare Python float 3\.0.*np\.float32\(3\.0\)"),
        ((1j,), "complex64"),
        ((np.zeros(4),), "argument 1 is a NumPy array in host memory"),
        ((np.zeros(1),), "argument 1 is a NumPy array"),  # CuPy would pass it by value: not what was meant
        *(((value,), "expected arrays on the GPU") for value in ([1, 2], (1,), "x", b"x", {"a": 1})),
        ((on_gpu(8, 8)[:, :4],), "not contiguous.*ascontiguousarray"),
        ((on_gpu(4, device=1),), "lies on cuda:1, the measurement runs on cuda:0"),
        *(((Foreign(np.zeros(4), kind),), "host memory") for kind in (1, 3)),
    ],
)
def test_what_a_kernel_would_misread_is_refused(args: tuple[Any, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        checked_arguments(args, GPU)


@pytest.mark.parametrize(
    ("grid", "block", "options", "said"),
    [
        ((0, 1, 1), (32, 1, 1), {}, "grid"),
        ((1, 65536, 1), (32, 1, 1), {}, "grid"),
        ((1, 1, 1), (1, 1, 65), {}, "block"),
        ((1, 1, 1), (32, 33, 1), {}, "1056 threads"),
        ((1, 1, 1), (512, 1, 1), {"most_threads": 256}, "this kernel allows 256"),
        ((2**24, 1, 1), (256, 1, 1), {"on_hip": True}, "4294967296 threads along an axis, HIP allows 4294967295"),
    ],
)
def test_impossible_launches_are_refused(grid: Any, block: Any, options: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        checked_shape(grid, block, **options)


def test_the_largest_launches_pass() -> None:
    checked_shape((2**31 - 1, 65535, 65535), (1024, 1, 1))
    checked_shape((1, 1, 1), (1, 16, 64))
    checked_shape((2**24, 1, 1), (255, 1, 1), on_hip=True)
    checked_shape((2**24, 1, 1), (256, 1, 1))


def test_bytes_of_every_librarys_array() -> None:
    assert device_nbytes(on_gpu(8, 4), GPU) == 128
    assert device_nbytes(Foreign(np.zeros(10)), GPU) == 80
    assert device_nbytes(NumbaLike((3, 5), "<f2"), GpuArrays(CUPY, 3)) == 30
    assert device_nbytes(NumbaLike((0,), "<f4", address=0), GPU) == 0


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.zeros(4), "host memory"),
        (Foreign(np.zeros(4), kind=1), "host memory"),
        (Foreign(np.zeros(4), device=2), "cuda:2"),
        (SimpleNamespace(nbytes=16), "not an array on the GPU"),
        ([1, 2], "not an array on the GPU"),
        (NumbaLike((4,), "<f4"), "cuda:3"),  # asked for its bare pointer
    ],
)
def test_bytes_of_what_the_gpu_does_not_hold_are_refused(array: Any, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        device_nbytes(array, GPU)


@pytest.mark.parametrize(
    ("parameter", "dtype", "kind"),
    [
        ("const float* a", "float64", "float"),
        ("float (*a)[4]", "float64", "float"),
        ("float4 *a", "float64", "float4"),
        ("unsigned int* a", "int64", "unsigned int"),
        ("__half* a", "float32", "__half"),
        ("__nv_bfloat16* a", "float16", "__nv_bfloat16"),
        # The same numbers, their bits, and types that are not known.
        ("const float* a", "float32", None),
        ("float2* a", "complex64", None),
        ("unsigned* a", "int32", None),
        ("float* a", "uint32", None),
        ("__nv_bfloat16* a", "uint16", None),
        ("T* a", "float64", None),
        ("char* a", "float64", None),
    ],
)
def test_arrays_of_other_numbers_than_the_source_reads(parameter: str, dtype: str, kind: str | None) -> None:
    source = f'extern "C" __global__ void k({parameter}, int n) {{ }}'
    found = misread_arrays(source, "k", (np.zeros(4, dtype), np.int32(4)))
    assert found == (() if kind is None else (f"`a` is {dtype}, the kernel's parameter is {kind}",))
