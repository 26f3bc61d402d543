"""ncu's table, and broken ones: a value, or an error of one line."""

import pytest
from stand_in_profilers import (
    APPLICATION_CRASHED,
    APPLICATION_FAILED,
    BASE_UNITS,
    COPY,
    HELD_BY_OTHERS,
    L2,
    METRICS,
    NO_KERNEL,
    NOT_PERMITTED,
    OP_UNITS,
    TRIAD,
    UNKNOWN_METRIC,
    mutated,
    told_of,
    wide,
)

from pytest_bandwidth.features.counters.dram_traffic import CountersFailed
from pytest_bandwidth.features.counters.ncu_csv import metrics_of, parse

HOPPER, BLACKWELL, VOLTA = metrics_of("9.0"), metrics_of("12.0"), metrics_of("7.0")
# As a rescaling ncu writes it without --print-units base.
RESCALED = {METRICS[0]: "Mbyte", METRICS[1]: "Kbyte", METRICS[2]: "usecond", L2[0]: "sector", L2[1]: "Ksector"}
# The example of a report that somebody published, with metrics of its own beside ours.
PUBLISHED = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC","dram__bytes_read.sum","dram__bytes_write.sum","sm__cycles_active.avg"\n'
    '"","","","","","","","","","","","byte","byte","cycle"\n'
    '"0","1234","python3","host","ampere_fp16_gemm","1","7","(128, 1, 1)","(80, 1, 1)","0","8.0",'
    '"2,000,000,000","1,000,000","n/a"\n'
)


def test_a_kernel_says_what_it_moved() -> None:
    found = parse(wide(TRIAD), HOPPER)
    assert (found.bytes_read, found.bytes_written, found.counted_by) == (268_435_456, 134_217_728, "ncu")
    assert found.seconds == pytest.approx(95.456e-6)
    assert (found.l2_sectors_read, found.l2_sectors_written) == (8_388_608, 4_194_304)


def test_several_kernels_are_summed_and_listed() -> None:
    found = parse(wide(TRIAD, COPY), HOPPER)
    assert (found.bytes_read, found.bytes_written, found.kernel_count) == (268_436_480, 134_219_776, 2)
    assert [(kernel.name, kernel.bytes_read) for kernel in found.kernels] == [
        ("triad_f32(float *, const float *)", 268_435_456),
        ("copy_f32", 1024),
    ]


def test_of_many_kernels_the_first_are_listed_and_all_summed() -> None:
    found = parse(wide(*[COPY] * 30), HOPPER)
    assert (len(found.kernels), found.kernel_count, found.bytes_read) == (20, 30, 30 * 1024)


def test_rescaled_units() -> None:
    found = parse(wide(("triad", ("268.44", "134,217.73", "95.46", "8388608", "4,194.3")), units=RESCALED), HOPPER)
    assert (found.bytes_read, found.bytes_written, found.l2_sectors_written) == (268_440_000, 134_217_730, 4_194_300)
    assert found.seconds == pytest.approx(95.46e-6)


def test_the_names_of_blackwell() -> None:
    assert parse(wide(TRIAD, units=OP_UNITS), BLACKWELL).bytes_read == 268_435_456


def test_without_what_only_explains() -> None:
    units = dict(list(BASE_UNITS.items())[:2])
    found = parse(wide(TRIAD, units=units), VOLTA)
    assert (found.bytes_read, found.seconds, found.l2_sectors_read) == (268_435_456, None, None)
    assert parse(PUBLISHED, HOPPER) == parse(PUBLISHED, VOLTA)
    assert parse(PUBLISHED, HOPPER).bytes_read == 2_000_000_000


def test_lines_of_the_profiler_in_the_table_are_none_of_it() -> None:
    lines = wide(TRIAD, COPY).splitlines()
    lines.insert(-2, '==PROF== Profiling "copy" - 1: 0%....50%....100% - 1 pass')
    assert parse("\n".join(lines), HOPPER).kernel_count == 2


def test_a_test_that_failed_under_the_profiler_was_counted_all_the_same() -> None:
    assert parse(wide(TRIAD) + APPLICATION_FAILED, HOPPER).bytes_read == 268_435_456


NA = ("triad", ("n/a", "1", "1", "1", "1"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (NOT_PERMITTED, "load it with NVreg_RestrictProfilingToAdminUsers=0"),
        (HELD_BY_OTHERS, "another profiler holds the counters: end it, or pause DCGM"),
        (UNKNOWN_METRIC, "install a newer Nsight Compute"),
        ("==ERROR== Failed to prepare kernel for profiling\n" + wide(TRIAD), "Failed to prepare kernel"),
        (NO_KERNEL, "ncu saw no kernel in the range"),
        (wide(), "ncu saw no kernel in the range"),
        ("", "ncu wrote no table"),
        ("Segmentation fault", "ncu wrote no table"),
        (APPLICATION_FAILED, "ncu wrote no table"),
        (wide(TRIAD) + APPLICATION_CRASHED, "the test crashed under ncu, so that kernels may be missing: run it by"),
        (wide(NA, units={**BASE_UNITS, METRICS[0]: ""}), "dram__bytes_read.sum is n/a for kernel 'triad'"),
        (wide(TRIAD, units={**BASE_UNITS, METRICS[1]: "furlong"}), "dram__bytes_write.sum in 'furlong'"),
        (wide(TRIAD, units={METRICS[0]: "byte"}), "ncu wrote no dram__bytes_write.sum"),
        (wide(("triad", ("-5", "1", "1", "1", "1"))), "dram__bytes_read.sum '-5', expected a number"),
        (wide(("triad", ("1,23", "1", "1", "1", "1"))), "'1,23', expected a number"),
        (wide(TRIAD).replace('"80, 1, 1"', ""), None),
        (wide(TRIAD, after='"1","2"\n'), "a row of 2 cells"),
        (wide(TRIAD).replace('"Device"', '"ID"'), "more than one column 'ID'"),
    ],
)
def test_errors_are_one_line_with_what_was_found(text: str, said: str | None) -> None:
    if said is None:
        parse(text, HOPPER)
        return
    with pytest.raises(CountersFailed) as caught:
        parse(text, HOPPER)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_wrong_with_the_table_names_the_program_and_a_remedy() -> None:
    with pytest.raises(CountersFailed) as caught:
        parse(wide(TRIAD, after='"1"\n'), HOPPER)
    assert str(caught.value) == (
        "ncu's table: found a row of 1 cells ('1'), expected the header's 16; "
        "try another release of Nsight Compute, or --bandwidth-counters=off"
    )


def test_ten_thousand_mutated_outputs_give_a_value_or_one_line() -> None:
    texts = [wide(TRIAD, COPY), wide(TRIAD, units=RESCALED), NOT_PERMITTED, NO_KERNEL, PUBLISHED]
    values, errors = told_of(lambda text: parse(text, HOPPER), mutated(texts, 10_000))
    assert len(values) > 500
    assert all(0 <= found.bytes_read < 2**63 * found.kernel_count for found in values)
    assert len(errors) > 1000
    assert not any("\n" in error or len(error) > 500 for error in errors)
