"""What `make gpu` runs, from end to end on the emulated card: the tests made for a GPU, the suite, the self-test."""

import os
import re
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from card_processes import NOTHING, TESTS, Card

from pytest_bandwidth.baseline import load

REPOSITORY = TESTS.parent
# They take minutes here: three seconds of the card, and matrix products of 4096³. How fast those are, a GPU tells.
NOT_HERE = (
    "test_gpu_kernels.py::test_a_busy_neighbour_is_seen",
    "test_gpu_best_versions.py::test_it_reaches_most_of_its_probe",
    "test_gpu_best_versions.py::test_attention_without_scores_in_memory_is_twice_as_fast",
    "test_gpu_best_versions.py::test_tensor_cores_multiply_five_times_as_fast",
)
REASONS_TO_SKIP = (
    *("could not import 'torch'", "could not import 'ml_dtypes'", "Numba sees no GPU", "no datasheet row"),
    "a peer copy needs two GPUs",
)
# One of each way to launch; test_suite.py runs each operation.
OPERATIONS = "copy-plain-float32 or gemm-library-float32 or host_to_device-pinned"
SHORT = "--bandwidth-max-time=0.02 --bandwidth-min-samples=3 --bandwidth-precision=10%"
# Without what takes no part, nor assertions rewritten in each of twenty processes.
PLAIN = (
    "-p no:xdist -p no:randomly -p no:benchmark -p no:hypothesispytest -p no:unraisableexception",
    "--assert=plain",
)
# A memory of 5 GB/s and a cache as much smaller: what takes a time moves a sixteenth of the data.
SMALL = {"BUS_BITS": 4, "L2_BYTES": 1 << 16}
# The memory is small, so that the suite's arrays are small. They are larger than the cache all the same.
SMALLER = {"BUS_BITS": 4, "L2_BYTES": 1 << 13, "MEMORY_BYTES": 4 << 30}
# No time: it takes what a real card does not, and as long as other processes let it.
PART_SECONDS = 3000


@dataclass(frozen=True)
class Session:
    """Hold how `benchmarks/gpu_session.py` ended, and the folder of what it wrote: results, baselines, docs."""

    done: subprocess.CompletedProcess[str]
    folder: Path

    @property
    def results(self) -> Path:
        return self.folder / "results"


def run_session(
    card: Card, folder: Path, part: str, addopts: str, *more: str, env: Mapping[str, str] = NOTHING, **settings: object
) -> Session:
    environment = {
        "PYTHONPATH": os.pathsep.join((card.environment(SMALL)["PYTHONPATH"], str(TESTS / "support"))),
        "PYTEST_ADDOPTS": " ".join((*PLAIN, addopts, *(f"--deselect=tests/gpu/{name}" for name in NOT_HERE))),
        **env,
    }
    args = ["benchmarks/gpu_session.py", part, f"--out={folder / 'results'}", f"--part-seconds={PART_SECONDS}", *more]
    return Session(card.run(args, {**SMALL, **settings}, cwd=REPOSITORY, env=environment), folder)


@pytest.fixture(scope="module")
def new_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    return lambda: tmp_path_factory.mktemp("session")


@pytest.fixture(scope="module")
def first(shared_card: Card, new_folder: Callable[[], Path], ncu: dict[str, str]) -> Session:
    quick = "--first=-k copy-plain-float32"
    return run_session(shared_card, new_folder(), "first", f"-p small_suite {SHORT}", quick, env=ncu)


@pytest.fixture(scope="module")
def suite(shared_card: Card, new_folder: Callable[[], Path], ncu: dict[str, str]) -> Session:
    folder = new_folder()
    written = f"--suite=--baselines {folder / 'baselines'} --docs {folder / 'docs'} --mib 1"
    addopts = f"-p small_suite {SHORT} -k '{OPERATIONS}'"
    return run_session(shared_card, folder, "suite", addopts, written, env=ncu, **SMALLER)


@pytest.fixture(scope="module")
def selftest(shared_card: Card, new_folder: Callable[[], Path]) -> Session:
    return run_session(shared_card, new_folder(), "selftest", "", "--selftest=--runs 9 --mib 1 --drop 10%", BUS_BITS=1)


@pytest.mark.parametrize("part", ["first", "suite", "selftest"])
def test_every_step_of_a_part_ends_well(part: str, request: pytest.FixtureRequest) -> None:
    session = request.getfixturevalue(part)
    assert session.done.returncode == 0, session.done.stdout + session.done.stderr
    assert "Emulated GPU" in session.done.stdout


def test_only_what_cannot_run_here_skips(first: Session) -> None:
    reports = sorted(first.results.glob("*.xml"))
    assert len(reports) >= 5
    for report in reports:
        for skipped in ET.parse(report).iter("skipped"):
            assert any(reason in skipped.attrib["message"] for reason in REASONS_TO_SKIP), skipped.attrib["message"]


@pytest.mark.parametrize("left_out", NOT_HERE)
def test_what_is_left_out_exists(left_out: str) -> None:
    file, _, name = left_out.partition("::")
    assert f"def {name}(" in (TESTS / "gpu" / file).read_text(encoding="utf-8")


def test_the_baseline_holds_a_run_of_each_process_and_says_what_it_is(suite: Session) -> None:
    (file,) = (suite.folder / "baselines").glob("*.yaml")
    assert file.read_text(encoding="utf-8").startswith("# Emulated (tests/emulated_card): no figure here is a GPU's.")
    entries = load(file).entries
    assert len(entries) >= 4
    assert {len(entry.runs) for entry in entries.values()} == {10}


def test_the_page_shows_each_operation_and_says_what_it_is(suite: Session) -> None:
    (page,) = (suite.folder / "docs").glob("*.md")
    text = page.read_text(encoding="utf-8")
    assert text.startswith("Emulated (tests/emulated_card): no figure here is a GPU's.\n\n# Emulated GPU\n")
    assert "over 10 new processes" in text
    assert "Left out" not in text
    assert len(re.findall(r"^\| [a-z_]+-\S+-float32", text, re.MULTILINE)) >= 4
    counted = text.partition("## What DRAM moved")[2].partition("## Selftest")[0]
    rows = re.findall(r"^\| ([a-z-]+)-float32.* ([\d.]+) \|$", counted, re.MULTILINE)
    operations = {"write-plain", "copy-plain", "triad-plain", "sum-plain", "transpose-naive"}
    assert {name for name, _ in rows} == operations, counted
    assert all(abs(float(ratio) - 1) < 0.05 for _, ratio in rows), counted
    assert len(re.findall(r"cupyx.profiler.benchmark \| [\d.]+ \|$", text, re.MULTILINE)) == 2


def test_it_recommends_a_tolerance(selftest: Session) -> None:
    assert "Recommended: --bandwidth-tolerance=" in (selftest.results / "selftest.log").read_text(encoding="utf-8")


def test_nothing_emulated_is_written_into_the_repository(card: Card) -> None:
    refused = card.run(["benchmarks/gpu.py"], {}, cwd=REPOSITORY)
    assert refused.returncode == 2
    assert "the emulated card is no GPU: expected --baselines and --docs outside" in refused.stderr
