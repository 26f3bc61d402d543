"""Before an operation is measured it has to be right; beside it stands what its model knows of it."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from test_operations_table import HostArrays

from pytest_bandwidth.domain.device import DeviceIdentity, Peak
from pytest_bandwidth.domain.errors import NotOnThisDevice
from pytest_bandwidth.suite.operations import OPERATIONS
from pytest_bandwidth.suite.operations.model import on_host, poison
from pytest_bandwidth.suite.test_operations import (
    DOUBLED_BYTES,
    bottleneck_finding,
    doubled_case,
    is_short,
    wave_finding,
    wrong_at_full_size,
    wrong_at_small_sizes,
)


class Host(HostArrays):
    """As much of the fixture as operations of the array library ask for."""

    device = "cpu"


def operation_called(title):
    return next(o for o in OPERATIONS if o.title == title)


COPY = operation_called("device_to_device-library")


def spoilt(operation, damage):
    """The operation with something done to each result after its steps."""

    def make(arrays, dtype, **sizes):
        case = operation.prepare(arrays, dtype, sizes)

        def harm():
            for array in case.results.values():
                damage(array)

        return replace(case, steps=(*case.steps, harm))

    return replace(operation, make=make)


def zero_last(array):
    array[-1:] = 0


def nan_last(array):
    array[-1:] = np.nan


GPU = DeviceIdentity("cuda", "a card", None, "0", timed_on="gpu")
TRIAD = operation_called("triad-plain")


@pytest.mark.parametrize(
    ("operation", "identity", "peak", "flops", "short"),
    [
        (TRIAD, GPU, 300.0, None, True),
        (TRIAD, GPU, 200.0, None, False),
        (TRIAD, GPU, None, None, False),
        (TRIAD, GPU, 300.0, 50e9, True),
        (TRIAD, GPU, 300.0, 30e9, False),
        (TRIAD, replace(GPU, facts={"gfx": "gfx942"}), 300.0, None, False),
        (TRIAD, replace(GPU, timed_on="host"), 300.0, None, False),
        (COPY, GPU, 300.0, None, False),
    ],
    ids=["short", "long", "no peak", "little to compute", "much to compute", "HIP", "host", "library"],
)
def test_what_takes_less_than_50_us_at_the_peaks_is_timed_from_a_graph(operation, identity, peak, flops, short):
    case = operation.prepare(Host(), "float32", {"n": 1 << 20})  # a triad moves 12.6 MB, of 2.1 MFLOP
    assert is_short(case, identity, None if peak is None else Peak(peak * 1e9, "as scripted"), flops) is short


def test_a_right_operation_passes_at_small_sizes():
    assert wrong_at_small_sizes(Host(), COPY, "float32") == []


def test_one_wrong_element_is_told_with_its_size():
    first, second = wrong_at_small_sizes(Host(), spoilt(COPY, zero_last), "float32")
    assert first.startswith("n = 1: out[0] is 0, expected ")
    assert second.startswith("n = 1001: out[1000] is 0, expected ")


@pytest.mark.parametrize(
    ("damage", "n", "profile", "said"),
    [
        *((None, n, "quick", []) for n in (1001, 3 << 20)),
        (zero_last, 1001, "quick", ["out[1000] is 0, expected "]),
        # Larger work is compared in the full profile; in the other it shows what was not written.
        (zero_last, 3 << 20, "quick", []),
        (nan_last, 3 << 20, "quick", [f"out: 1 of {3 << 20} elements were not written"]),
        (zero_last, 3 << 20, "full", [f"out[{(3 << 20) - 1}] is 0, expected "]),
    ],
)
def test_the_measured_size_is_compared_where_that_is_cheap(damage, n, profile, said):
    operation = COPY if damage is None else spoilt(COPY, damage)
    case = operation.prepare(Host(), "float32", {"n": n})
    found = wrong_at_full_size(Host(), operation, "float32", case, profile)
    assert [line[: len(start)] for line, start in zip(found, said, strict=True)] == said


def test_on_the_traffic_device_executing_is_measuring():
    class Traffic(Host):
        device = "traffic"

    case = COPY.prepare(Traffic(), "float32", {"n": 8})
    assert wrong_at_full_size(Traffic(), spoilt(COPY, nan_last), "float32", case, "quick") == []


@pytest.mark.parametrize("title", ["quantize_int8-plain", "quantize_fp8-plain"])
def test_codes_of_8_bits_that_were_not_written_are_seen(title):
    operation = operation_called(title)
    case = replace(operation.prepare(Host(), "float32", {"rows": 600, "cols": 4096}), steps=())  # 12 MB: not compared
    lines = wrong_at_full_size(Host(), operation, "float32", case, "quick")
    assert lines == [
        f"{name}: {n} of {n} elements were not written" for name, n in (("codes", 2457600), ("scales", 600))
    ]

    def write():
        for name, values in case.expected().items():
            case.results[name][...] = values

    case = replace(case, steps=(write,))
    assert wrong_at_full_size(Host(), operation, "float32", case, "quick") == []


# ---- a doubled batch -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("title", "sizes"),
    [
        ("gemm-blocked", {"m": 1, "n": 896, "k": 896}),
        ("copy-plain", {"n": 1000}),
        ("softmax-staged", {"rows": 8, "cols": 128}),
        ("attention-flash", {"batch": 1, "heads": 2, "n": 64, "d": 64}),
    ],
)
def test_all_of_small_work_is_doubled(title, sizes):
    operation = operation_called(title)
    case = operation.prepare(Host(), "float32", sizes)
    doubled = doubled_case(Host(), operation, "float32", sizes, case)
    assert doubled.traffic.bytes_moved == pytest.approx(2 * case.traffic.bytes_moved, rel=0.1)
    assert doubled.traffic.flop == 2 * case.traffic.flop


def test_large_work_waits_for_no_launch():
    sizes = {"n": DOUBLED_BYTES // 8 + 1}
    case = COPY.prepare(Host(), "float32", sizes)
    assert doubled_case(Host(), COPY, "float32", sizes, case) is None


def test_work_that_no_size_doubles_is_no_evidence():
    operation = operation_called("layer_norm-staged")
    sizes = {"rows": 1, "cols": 1024}  # scale and shift are as large as the row
    case = operation.prepare(Host(), "float32", sizes)
    assert doubled_case(Host(), operation, "float32", sizes, case) is None


# ---- orders of access ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "version", "dtype", "sizes", "device", "sentence"),
    [
        ("strided_read", "plain", "float32", {"n": 9, "stride": 8}, "cuda", "strided reads ask for 8.0× the sectors"),
        ("misaligned", "plain", "float32", {"n": 9, "offset": 1}, "cuda", "misaligned reads ask for 1.2× the sectors"),
        ("gather", "int32", "float16", {"n": 9}, "cuda", "random reads ask for 16.0× the sectors"),
        ("transpose", "naive", "float32", {"rows": 2048, "cols": 9}, "cuda", "strided writes ask for 8.0× the sectors"),
        ("strided_read", "plain", "float32", {"n": 9, "stride": 8}, "cpu", "strided reads ask for 8.0× the bytes"),
        ("strided_read", "plain", "float32", {"n": 9, "stride": 32}, "cpu", "strided reads ask for 16.0× the bytes"),
        ("gather", "int64", "float32", {"n": 9}, "cpu", "random reads ask for 16.0× the bytes"),
        ("copy", "plain", "float32", {"n": 9}, "cuda", None),
        ("transpose", "tiled", "float32", {"rows": 2048, "cols": 9}, "cuda", None),
        ("transpose", "wide", "float32", {"rows": 2048, "cols": 9}, "cuda", None),
        ("transpose", "naive", "float32", {"rows": 2048, "cols": 9}, "cpu", None),
        ("misaligned", "plain", "float32", {"n": 9, "offset": 1}, "cpu", None),
        ("strided_read", "plain", "float32", {"n": 9, "stride": 1}, "cuda", None),
        ("strided_read", "plain", "float32", {"n": 9, "stride": 8}, "traffic", None),  # counts by itself
    ],
)
def test_orders_that_ask_for_more_say_so(name, version, dtype, sizes, device, sentence):
    finding = bottleneck_finding(name, version, dtype, sizes, device)
    assert (finding and finding.text) == (sentence and f"{sentence} they need")


# ---- tiles and waves -------------------------------------------------------------------------------------------------

H200 = DeviceIdentity("cuda", "any", 2**37, "0", facts={"sm_count": 132}, timed_on="gpu")


@pytest.mark.parametrize(
    ("version", "m", "n", "sentence"),
    [
        ("pipelined", 128, 896, "7 tiles of 128×128 on 132 SMs make 1 wave, and 5 % of the SMs work in the last"),
        ("blocked", 1, 1, "1 tile of 64×64 on 132 SMs make 1 wave, and 1 % of the SMs work in the last"),
        ("pipelined", 1792, 1792, "196 tiles of 128×128 on 132 SMs make 2 waves, and 48 % of the SMs work in the last"),
        ("split-k", 128, 896, "98 tiles of 128×128×64 on 132 SMs make 1 wave, and 74 % of the SMs work in the last"),
        (
            *("pipelined", 1793, 1793),
            "225 tiles of 128×128 on 132 SMs make 2 waves, and 70 % of the SMs work in the last; "
            "the even size has 196 tiles in 2: 15 % more tiles, 0 % more waves",
        ),
        (
            *("pipelined", 4096, 4097),
            "1056 tiles of 128×128 on 132 SMs make 8 waves, and 100 % of the SMs work in the last; "
            "the even size has 1024 tiles in 8: 3 % more tiles, 0 % more waves",
        ),
        (
            *("pipelined", 1408, 1537),
            "143 tiles of 128×128 on 132 SMs make 2 waves, and 8 % of the SMs work in the last; "
            "the even size has 132 tiles in 1: 8 % more tiles, 100 % more waves",
        ),
    ],
)
def test_a_product_tells_its_waves(version, m, n, sentence):
    assert wave_finding("gemm", version, {"m": m, "n": n, "k": 896}, H200).text == sentence


@pytest.mark.parametrize(("m", "n", "processors", "parts"), [(1, 896, 132, 14), (128, 4864, 132, 3), (32, 896, 30, 4)])
def test_a_product_is_split_until_each_multiprocessor_has_a_block(m, n, processors, parts):
    identity, sizes = replace(H200, facts={"sm_count": processors}), {"m": m, "n": n, "k": 896}
    arrays = Host()
    arrays.identity = identity
    operation = operation_called("gemm-split-k")
    grid = operation.prepare(arrays, "float32", sizes).steps[0].grid
    assert grid[2] == parts
    assert wave_finding("gemm", "split-k", sizes, identity).text.startswith(f"{np.prod(grid)} tiles of 128×128×")


@pytest.mark.parametrize(
    ("name", "version", "m", "facts"),
    [
        ("gemm", "library", 64, {"sm_count": 132}),
        ("gemm", "naive", 64, {"sm_count": 132}),
        ("gemm", "pipelined", 0, {"sm_count": 132}),
        ("gemm", "pipelined", 64, {"sm_count": 304, "gfx": "gfx942"}),  # other tiles
        ("gemm", "pipelined", 64, {}),  # a host, and the traffic device
        ("q4_0_gemm", "fused", 64, {"sm_count": 132}),
    ],
)
def test_other_products_tell_of_no_waves(name, version, m, facts):
    assert wave_finding(name, version, {"m": m, "n": 64, "k": 64}, replace(H200, facts=facts)) is None


def test_a_result_on_another_gpu_is_poisoned_read_and_counted_there():
    inside, seen = [], []

    class OtherGpu:
        """As much of an array as poisoning and checking touch: each asks which GPU is current."""

        dtype = np.dtype("float32")

        @property
        def device(self):
            return self

        def __enter__(self):
            inside.append(self)

        def __exit__(self, *_):
            inside.clear()

        def fill(self, _value):
            seen.append(("fill", inside == [self]))

        def get(self):
            seen.append(("get", inside == [self]))
            return np.zeros(3)

    array, fixture = OtherGpu(), Host()
    poison(replace(COPY.prepare(Host(), "float32", {"n": 3}), results={"out": array}))
    assert (on_host(array) == np.zeros(3)).all()
    fixture.xp = SimpleNamespace(isnan=lambda found: (seen.append(("isnan", inside == [found])), np.zeros(3, bool))[1])
    case = replace(COPY.prepare(Host(), "float32", {"n": 3 << 20}), steps=(), results={"out": array})
    assert wrong_at_full_size(fixture, COPY, "float32", case, "quick") == []
    copied = COPY.prepare(Host(), "float32", {"n": 3 << 20})  # what lies on the host is looked at with NumPy
    assert wrong_at_full_size(fixture, COPY, "float32", copied, "quick") == []
    assert set(seen) == {("fill", True), ("get", True), ("isnan", True)}


def test_a_product_without_its_library_skips_and_says_what_to_install():
    def matmul(*_):
        raise ImportError('Failure finding "libcublasLt.so.13": No such file\n  listdir("/somewhere")')

    fixture = Host()
    fixture.xp = SimpleNamespace(ones=np.ones, matmul=matmul)
    library = next(o for o in OPERATIONS if o.title == "gemm-library" and "float16" in o.dtypes)
    with pytest.raises(NotOnThisDevice) as caught:
        library.prepare(fixture, "float16", {"m": 3, "n": 3, "k": 3})
    assert str(caught.value) == (
        'CuPy\'s matrix product needs cuBLAS, which does not load (Failure finding "libcublasLt.so.13": No such file): '
        "pip install 'cuda-toolkit[cublas]==13.*' (for CUDA 12: nvidia-cublas-cu12)"
    )
