"""Choose the operations, dtypes and shapes of a run of the suite, and how large they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.suite.operations import OPERATIONS
from pytest_bandwidth.suite.operations.model import Operation, Sizes, sizes_of
from pytest_bandwidth.suite.traffic_models import formula_of

Profile = Literal["quick", "full"]

# Sizes exceed the caches by this factor, but never a share of memory. On a GPU, the data that a cache has yet to write
# then hardly count, and a launch does not read the previous launch's results (half of that, or more) from a cache.
CACHE_FACTOR, GPU_CACHE_FACTOR = 5, 16
MEMORY_SHARE = 0.05
LEAST_BYTES, QUICK_MOST_BYTES, FULL_MOST_BYTES = 64 * 2**20, 192 * 2**20, 1024 * 2**20
# The traffic device executes every thread: small sizes count the same per element.
TRAFFIC_BYTES = 2**18
# Limits (bytes, FLOP) for slow kinds of device. Operations with shapes of their own take the shapes within them, in
# every version; without such a shape, the largest that breaks all versions, which is past a tile and a block.
MOST_WORK: dict[str, tuple[int, int]] = {"traffic": (2**26, 2**28), "cpu": (2**40, 2**36)}
# All dtypes of an operation get the sizes that suit this one: the same operation in two precisions is a pair.
SIZING_DTYPE = "float32"
# The quick profile leaves out tests that show nothing new.
NOT_QUICK = frozenset(
    {
        *("softmax-naive", "softmax-online", "layer_norm-naive", "gemm-tiled"),
        *("kv_decode_paged-plain", "kv_decode_fp8-plain"),
    }
)
NOT_QUICK_VERSIONS = frozenset({"int64", "pageable"})
# Of streams and reductions, read, copy, triad and sum show how a kernel fills the memory of a fast card.
NOT_QUICK_WIDE = frozenset({"write-wide", "scale-wide", "add-wide", "dot-wide"})
# Not on a host: threads of its BLAS occupy the probe's processors, which disturbs every round.
GPU_LIBRARIES = frozenset({"gemm-library"})
# On a host one function replaces several versions of a kernel, which differ on a GPU only.
SAME_ON_HOST = frozenset(
    {
        *("read-plain", "copy-plain", "triad-plain", "sum-plain", "cos_cos-fused", "swiglu-plain", "intensity_fma-fma"),
        *("embedding-plain", "transpose-tiled", "softmax-staged", "layer_norm-staged", "rms_norm_residual-naive"),
        *("logsumexp-fused", "rope-plain", "gemm-blocked", "gemv-plain", "q4_0_dequantize-plain", "attention-flash"),
        "kv_append-plain",
    }
)
# Data that any cache would hold, on purpose: it is measured cold, and is GB/s like any other.
CACHED: dict[str, Sizes] = {"copy-plain": {"n": 1 << 20}}
CACHED_DTYPES = frozenset({"float32", "float16"})
NOT_QUICK_OPERATIONS = frozenset({"q4_0_gemm", "intensity_add", "strided_write", "nhwc_to_nchw"})
QUICK_HALF = frozenset(
    {
        *("copy-wide", "copy-plain", "triad-wide", "triad-plain", "softmax-registers", "softmax-staged"),
        *("gemm-blocked", "gemm-library", "gemm-pipelined", "gemm_int8-pipelined", "gemv-wide", "q4_0_gemv-planar"),
        *("attention-flash2", "kv_append-wide", "kv_append-plain", "kv_decode-grouped", "kv_decode-split"),
    }
)
# A host converts halves by instructions, so its rows of halves show little else: streams and one reduction suffice.
QUICK_HALF_ON_HOST = frozenset({"copy-wide", "copy-plain", "triad-wide", "softmax-registers"})
# On a GPU; counts are those of float16.
QUICK_BFLOAT16 = frozenset(
    {"triad-wide", "softmax-registers", "gemm-pipelined", "gemv-wide", "attention-flash2", "kv_decode-grouped"}
)
PROBING_BYTES = (2**24, 2**28)
_CACHES = ("l2_bytes", "l3_bytes", "last_cache_bytes")
# The cost of one more element, in pairs: more tiles, and perhaps a wave of them more (256×128 on the 108
# multiprocessors of an A100: 98 tiles, 120), rows that begin at no multiple of 16 bytes or end in the middle of a warp.
_WAVES = sizes_of("m n k", (1792, 1792, 512), (1793, 1793, 512))
_LARGE = sizes_of("m n k", (4096, 4096, 4096), (4096, 4097, 4096))
SHAPE_EFFECTS: dict[str, tuple[Sizes, ...]] = {
    "gemm-pipelined": _WAVES + _LARGE,
    "gemm-blocked": _WAVES,
    "gemm-library": _WAVES + _LARGE,
    **dict.fromkeys(("softmax-registers", "softmax-staged"), sizes_of("rows cols", (4096, 1024), (4096, 1025))),
    **dict.fromkeys(("transpose-wide", "transpose-tiled"), sizes_of("rows cols", (2048, 2048), (2049, 2049))),
}


@dataclass(frozen=True, slots=True)
class Selected:
    """Name one test. shape: which of the operation's shapes; sizes: set where they do not follow the device."""

    operation: Operation
    dtype: str
    shape: int
    sizes: Sizes | None

    @property
    def id(self) -> str:
        sizes = "".join(f"-{name}{value}" for name, value in self.sizes.items()) if self.sizes else ""
        many = len(self.operation.shapes(PROBING_BYTES[0], SIZING_DTYPE)) > 1
        index = f"-{self.shape}" if many and not sizes else ""
        return f"{self.operation.title}-{self.dtype}{sizes}{index}"

    def sizes_on(self, identity: DeviceIdentity, profile: Profile) -> Sizes:
        """Return the sizes to measure at on this device."""
        return self.sizes or self.operation.shapes(target_bytes(identity, profile), SIZING_DTYPE)[self.shape]


def selected(profile: Profile, device_kind: str | None) -> Iterator[Selected]:
    """Yield the suite's tests; `device_kind` leaves out tests that this kind cannot run (None: not known yet)."""
    quick_in = {
        "float16": QUICK_HALF_ON_HOST if device_kind == "cpu" else QUICK_HALF,
        "bfloat16": () if device_kind == "traffic" else QUICK_BFLOAT16,
    }
    for operation in OPERATIONS:
        if device_kind is not None and device_kind not in operation.devices:
            continue
        left_out = operation.version in NOT_QUICK_VERSIONS or operation.name in NOT_QUICK_OPERATIONS
        elsewhere = SAME_ON_HOST | GPU_LIBRARIES if device_kind == "cpu" else frozenset[str]()
        is_quick = not left_out and operation.title not in NOT_QUICK | NOT_QUICK_WIDE | elsewhere
        for dtype in operation.dtypes:
            if operation.title in CACHED and dtype in CACHED_DTYPES and device_kind != "traffic":
                yield Selected(operation, dtype, 0, CACHED[operation.title])
            if profile == "full":
                yield from _shapes(operation, dtype, profile, device_kind)
                effects = SHAPE_EFFECTS.get(operation.title, ())
                yield from (Selected(operation, dtype, 0, s) for s in effects if _suits(operation, s, device_kind))
            elif is_quick and (dtype == "float32" or operation.title in quick_in.get(dtype, ())):
                yield from _shapes(operation, dtype, profile, device_kind)


def _shapes(operation: Operation, dtype: str, profile: Profile, device_kind: str | None) -> Iterator[Selected]:
    small, large = (operation.shapes(size, SIZING_DTYPE) for size in PROBING_BYTES)
    # The last of several shapes is the largest; a quick run takes one from the middle.
    middle = len(small) // 2
    if small != large:
        indices = range(len(small)) if profile == "full" else [middle]
        yield from (Selected(operation, dtype, index, None) for index in indices)
        return
    wanted = small if profile == "full" else small[: middle + 1]
    suitable = [sizes for sizes in wanted if _suits(operation, sizes, device_kind)]
    if not suitable:
        every = [version.small for version in OPERATIONS if version.name == operation.name]
        common = [sizes for sizes in operation.small if all(sizes in small for small in every)]
        suitable = [max(common, key=lambda sizes: _work(operation, sizes).flop)]
    for sizes in suitable if profile == "full" else suitable[-1:]:
        yield Selected(operation, dtype, 0, sizes)


def _suits(operation: Operation, sizes: Sizes, device_kind: str | None) -> bool:
    """Return whether the device is quick enough for every version: those of one name are compared at equal sizes."""
    if device_kind not in MOST_WORK:
        return True
    most_bytes, most_flop = MOST_WORK[device_kind]
    versions = [o for o in OPERATIONS if o.name == operation.name and device_kind in o.devices]
    work = [_work(version, sizes) for version in versions]
    return all(moved.bytes_moved <= most_bytes and moved.flop <= most_flop for moved in work)


def _work(operation: Operation, sizes: Sizes) -> Traffic:
    return formula_of(operation.name, operation.version).at(sizes, SIZING_DTYPE)


def target_bytes(identity: DeviceIdentity, profile: Profile) -> int:
    """Return the bytes that one run of an operation should move on this device, in single precision."""
    if identity.counts_only:
        return TRAFFIC_BYTES
    cache = max((int(v) for k, v in identity.facts.items() if k in _CACHES and v), default=0)
    of_memory = int((identity.memory_bytes or 2**33) * MEMORY_SHARE)
    least = FULL_MOST_BYTES if profile == "full" else LEAST_BYTES
    if identity.on_gpu:
        # A card moves a GB in about a millisecond, so only its caches and its memory decide how much.
        return min(max(GPU_CACHE_FACTOR * cache, 4 * least if profile == "full" else least), of_memory)
    most = QUICK_MOST_BYTES if profile == "quick" else FULL_MOST_BYTES
    return min(max(CACHE_FACTOR * cache, least), most, of_memory)
