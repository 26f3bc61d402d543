"""rocprofv3's tables, of both ages, and broken ones: a value, or an error of one line."""

import pytest
from stand_in_profilers import FLUSH, NEW_COLUMNS, OLD_COLUMNS, mutated, rocprof, told_of

from pytest_bandwidth.features.counters.dram_traffic import CountersFailed
from pytest_bandwidth.features.counters.rocprofv3_csv import parse

TRIAD = ("triad_f32(float*, float const*)", "262144.0", "131072.5")
COPY = ("copy_f32", "1", "2")


@pytest.mark.parametrize("columns", [NEW_COLUMNS, OLD_COLUMNS])
def test_what_lies_between_the_flushes_is_summed_in_bytes(columns: list[str]) -> None:
    found = parse(rocprof(FLUSH, COPY, FLUSH, TRIAD, COPY, FLUSH, TRIAD, columns=columns), "fill_cache")
    assert (found.bytes_read, found.bytes_written) == (262_145 * 1024, round(131_074.5 * 1024))
    assert (found.kernel_count, found.counted_by) == (2, "rocprofv3")
    assert [kernel.name for kernel in found.kernels] == [TRIAD[0], COPY[0]]
    assert found.seconds == pytest.approx(1e-6)


def test_columns_of_a_later_release_and_other_names_of_the_kernel() -> None:
    flush = ("fill_cache(Vector*, unsigned int*) .kd", *FLUSH[1:])
    columns = [*NEW_COLUMNS, "Something_New"]
    assert parse(rocprof(FLUSH, TRIAD, flush, columns=columns), "fill_cache").kernel_count == 1
    assert parse(rocprof(("fill_cache.kd", "1", "1"), TRIAD, FLUSH), "fill_cache").kernel_count == 1


def test_dispatches_count_by_their_numbers() -> None:
    header, *rows = rocprof(FLUSH, TRIAD, FLUSH).splitlines()
    assert parse("\n".join([header, *reversed(rows)]), "fill_cache").kernel_count == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "rocprofv3 wrote an empty file"),
        (rocprof(), "0 dispatches of fill_cache"),
        (rocprof(FLUSH, TRIAD), "1 dispatches of fill_cache"),
        (rocprof(FLUSH, FLUSH), "no kernel of the workload"),
        (rocprof(FLUSH, ("triad", "n/a", "1"), FLUSH), "FETCH_SIZE 'n/a', expected a number"),
        (rocprof(FLUSH, TRIAD, FLUSH).replace("WRITE_SIZE", "FETCH_SIZE"), "twice, expected it once"),
        (rocprof(FLUSH, TRIAD, FLUSH).replace("WRITE_SIZE", "OTHER"), "rocprofv3 wrote no WRITE_SIZE"),
        (rocprof(columns=NEW_COLUMNS[:5]), "no column 'Kernel_Name'"),
        (rocprof(FLUSH) + "1,2\n", "a row of 2 cells"),
    ],
)
def test_errors_are_one_line_with_what_was_found(text: str, said: str) -> None:
    with pytest.raises(CountersFailed) as caught:
        parse(text, "fill_cache")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_wrong_with_the_table_names_the_program_and_a_remedy() -> None:
    with pytest.raises(CountersFailed) as caught:
        parse(rocprof(FLUSH) + "1\n", "fill_cache")
    assert str(caught.value) == (
        "rocprofv3's table: found a row of 1 cells ('1'), expected the header's 19; "
        "try another release of ROCm's rocprofiler-sdk, or --bandwidth-counters=off"
    )


def test_ten_thousand_mutated_outputs_give_a_value_or_one_line() -> None:
    texts = [rocprof(FLUSH, TRIAD, COPY, FLUSH), rocprof(FLUSH, TRIAD, FLUSH, columns=OLD_COLUMNS)]
    values, errors = told_of(lambda text: parse(text, "fill_cache"), mutated(texts, 10_000, seed=2))
    assert len(values) > 500
    assert all(0 <= found.bytes_read < 2**63 * found.kernel_count for found in values)
    assert len(errors) > 1000
    assert not any("\n" in error or len(error) > 500 for error in errors)
