"""Tables of ncu, and of rocprofv3 in both of its ages, and broken ones: a value, or an error of one line."""

from functools import partial

import pytest
from stand_in_profilers import (
    APPLICATION_CRASHED,
    APPLICATION_FAILED,
    BASE_UNITS,
    COPY,
    FLUSH,
    HELD_BY_OTHERS,
    METRICS,
    NEW_COLUMNS,
    NO_KERNEL,
    NOT_PERMITTED,
    OLD_COLUMNS,
    OP_UNITS,
    TRIAD,
    UNKNOWN_METRIC,
    mutated,
    rocprof,
    told_of,
    wide,
)

from pytest_bandwidth.features.counters.dram_traffic import CountersFailed
from pytest_bandwidth.features.counters.tables import metrics_of, ncu_traffic, rocprofv3_traffic

HOPPER, BLACKWELL, VOLTA = metrics_of("9.0"), metrics_of("12.0"), metrics_of("7.0")
# The example of a report that somebody published, with metrics of its own beside ours.
PUBLISHED = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC","dram__bytes_read.sum","dram__bytes_write.sum","sm__cycles_active.avg"\n'
    '"","","","","","","","","","","","byte","byte","cycle"\n'
    '"0","1234","python3","host","ampere_fp16_gemm","1","7","(128, 1, 1)","(80, 1, 1)","0","8.0",'
    '"2,000,000,000","1,000,000","n/a"\n'
)


NA = ("triad", ("n/a", "1", "1", "1", "1"))
# Of rocprofv3, which counts in KB.
TRIAD_KB = ("triad_f32(float*, float const*)", "262144.0", "131072.5")
COPY_KB = ("copy_f32", "1", "2")
of_ncu, of_rocprofv3 = partial(ncu_traffic, metrics=HOPPER), partial(rocprofv3_traffic, between="fill_cache")


def test_kernels_say_what_they_moved_and_the_first_of_many_are_listed() -> None:
    found = of_ncu(wide(TRIAD))
    assert (found.bytes_read, found.bytes_written, found.counted_by) == (268_435_456, 134_217_728, "ncu")
    assert found.seconds == pytest.approx(95.456e-6)
    assert (found.l2_sectors_read, found.l2_sectors_written) == (8_388_608, 4_194_304)
    found = of_ncu(wide(TRIAD, *[COPY] * 30))
    assert (found.bytes_read, found.bytes_written, found.kernel_count) == (268_466_176, 134_279_168, 31)
    assert len(found.kernels) == 20
    assert [(kernel.name, kernel.bytes_read) for kernel in found.kernels[:2]] == [
        ("triad_f32(float *, const float *)", 268_435_456),
        ("copy_f32", 1024),
    ]
    lines = wide(TRIAD, COPY).splitlines()
    lines.insert(-2, '==PROF== Profiling "copy" - 1: 0%....50%....100% - 1 pass')
    assert of_ncu("\n".join([*lines, APPLICATION_FAILED])).kernel_count == 2


def test_the_names_of_blackwell_and_tables_without_what_only_explains() -> None:
    assert ncu_traffic(wide(TRIAD, units=OP_UNITS), BLACKWELL).bytes_read == 268_435_456
    units = dict(list(BASE_UNITS.items())[:2])
    found = ncu_traffic(wide(TRIAD, units=units), VOLTA)
    assert (found.bytes_read, found.seconds, found.l2_sectors_read) == (268_435_456, None, None)
    assert of_ncu(PUBLISHED) == ncu_traffic(PUBLISHED, VOLTA)
    assert of_ncu(PUBLISHED).bytes_read == 2_000_000_000


@pytest.mark.parametrize("columns", [NEW_COLUMNS, OLD_COLUMNS])
def test_what_lies_between_the_flushes_is_summed_in_bytes(columns: list[str]) -> None:
    found = of_rocprofv3(rocprof(FLUSH, COPY_KB, FLUSH, TRIAD_KB, COPY_KB, FLUSH, TRIAD_KB, columns=columns))
    assert (found.bytes_read, found.bytes_written) == (262_145 * 1024, round(131_074.5 * 1024))
    assert (found.kernel_count, found.counted_by) == (2, "rocprofv3")
    assert [kernel.name for kernel in found.kernels] == [TRIAD_KB[0], COPY_KB[0]]
    assert found.seconds == pytest.approx(1e-6)


def test_columns_of_a_later_release_other_names_of_the_kernel_and_another_order() -> None:
    flush = ("fill_cache(Vector*, unsigned int*) .kd", *FLUSH[1:])
    table = rocprof(("fill_cache.kd", "1", "1"), TRIAD_KB, flush, columns=[*NEW_COLUMNS, "Something_New"])
    header, *rows = table.splitlines()
    assert of_rocprofv3("\n".join([header, *reversed(rows)])).kernel_count == 1


@pytest.mark.parametrize(
    ("parse", "text", "said"),
    [
        (of_ncu, NOT_PERMITTED, "load it with NVreg_RestrictProfilingToAdminUsers=0"),
        (of_ncu, HELD_BY_OTHERS, "another profiler uses the counters: end it, or pause DCGM"),
        (of_ncu, UNKNOWN_METRIC, "install a newer Nsight Compute"),
        (of_ncu, "==ERROR== Failed to prepare kernel for profiling\n" + wide(TRIAD), "Failed to prepare kernel"),
        (of_ncu, NO_KERNEL, "ncu saw no kernel in the range"),
        (of_ncu, "", "ncu wrote no table"),
        (of_ncu, APPLICATION_FAILED, "ncu wrote no table"),
        (
            of_ncu,
            wide(TRIAD) + APPLICATION_CRASHED,
            "the test crashed under ncu, so that kernels may be missing: run it by",
        ),
        (of_ncu, wide(NA, units={**BASE_UNITS, METRICS[0]: ""}), "dram__bytes_read.sum is n/a for kernel 'triad'"),
        (of_ncu, wide(TRIAD, units={**BASE_UNITS, METRICS[1]: "Kbyte"}), "dram__bytes_write.sum in 'Kbyte'"),
        (of_ncu, wide(TRIAD, units={METRICS[0]: "byte"}), "ncu wrote no dram__bytes_write.sum"),
        (of_ncu, wide(("triad", ("1,23", "1", "1", "1", "1"))), "'1,23', expected a number"),
        (of_ncu, wide(("triad", ("-5", "1", "1", "1", "1"))), "dram__bytes_read.sum '-5', expected a number"),
        (
            of_ncu,
            wide(TRIAD, after='"1"\n'),
            "ncu's table: found a row of 1 cells ('1'), expected the header's 16; "
            "try another release of Nsight Compute, or --bandwidth-counters=off",
        ),
        (of_ncu, wide(TRIAD).replace('"Device"', '"ID"'), "more than one column 'ID'"),
        (of_rocprofv3, "", "rocprofv3 wrote an empty file"),
        (of_rocprofv3, rocprof(FLUSH, TRIAD_KB), "1 dispatches of fill_cache"),
        (of_rocprofv3, rocprof(FLUSH, FLUSH), "no kernel of the workload"),
        (of_rocprofv3, rocprof(FLUSH, ("triad", "n/a", "1"), FLUSH), "FETCH_SIZE 'n/a', expected a number"),
        (
            of_rocprofv3,
            rocprof(FLUSH, TRIAD_KB, FLUSH).replace("WRITE_SIZE", "FETCH_SIZE"),
            "twice, expected it once",
        ),
        (
            of_rocprofv3,
            rocprof(FLUSH, TRIAD_KB, FLUSH).replace("WRITE_SIZE", "OTHER"),
            "rocprofv3 wrote no WRITE_SIZE",
        ),
        (of_rocprofv3, rocprof(columns=NEW_COLUMNS[:5]), "no column 'Kernel_Name'"),
        (
            of_rocprofv3,
            rocprof(FLUSH) + "1\n",
            "rocprofv3's table: found a row of 1 cells ('1'), expected the header's 19; "
            "try another release of ROCm's rocprofiler-sdk, or --bandwidth-counters=off",
        ),
    ],
)
def test_errors_are_one_line_with_what_was_found(parse, text: str, said: str) -> None:
    with pytest.raises(CountersFailed) as caught:
        parse(text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("parse", "texts"),
    [
        (of_ncu, [wide(TRIAD, COPY), NOT_PERMITTED, NO_KERNEL, PUBLISHED]),
        (
            of_rocprofv3,
            [
                rocprof(FLUSH, TRIAD_KB, COPY_KB, FLUSH),
                rocprof(FLUSH, TRIAD_KB, FLUSH, columns=OLD_COLUMNS),
            ],
        ),
    ],
)
def test_ten_thousand_mutated_outputs_give_a_value_or_one_line(parse, texts: list[str]) -> None:
    values, errors = told_of(parse, mutated(texts, 10_000))
    assert len(values) > 500
    assert all(0 <= found.bytes_read < 2**63 * found.kernel_count for found in values)
    assert len(errors) > 1000
    assert not any("\n" in error or len(error) > 500 for error in errors)
