"""benchmarks/card_mutations.py, card_judging.py and gpu_gate.py: they run to their end at their smallest."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from card_processes import HANGS_SECONDS, TESTS, Card

BENCHMARKS = TESTS.parent / "benchmarks"


def script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # for its dataclasses
    spec.loader.exec_module(module)
    return module


MUTATIONS = script("card_mutations")
PACKAGE = MUTATIONS.PACKAGE


@pytest.mark.smoke
@pytest.mark.parametrize("bug", MUTATIONS.BUGS, ids=lambda bug: bug.name.replace(" ", "-"))
def test_every_edit_fits_the_source_and_names_tests_that_are_there(bug: Any, tmp_path: Path) -> None:
    (tmp_path / bug.file).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(PACKAGE / bug.file, tmp_path / bug.file)
    bug.put_into(tmp_path)
    assert (tmp_path / bug.file).read_text() != (PACKAGE / bug.file).read_text()
    for test in bug.tests:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (TESTS / file).read_text()


def run(*args: str) -> str:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / args[0]), *args[1:]],
        capture_output=True,
        text=True,
        timeout=HANGS_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.usefixtures("new_card")
def test_a_bug_turns_its_test_red() -> None:
    shown = run("card_mutations.py", "--bug", "events swapped")
    assert "| events swapped | `test_gpu_hold.py::test_an_ordinary_callable_is_held` |" in shown


@pytest.mark.experiment
@pytest.mark.usefixtures("new_card")
def test_the_judging_beside_a_neighbour_runs_to_its_end() -> None:
    shown = run("card_judging.py", "--neighbour=2000/10000", "--judged=5")
    assert re.search(r"^\| 2000/10000 \| unchanged \| 5 \| ", shown, re.MULTILINE), shown
    assert re.search(r"^\| 2000/10000 \| 10 % slower \| 5 \| ", shown, re.MULTILINE), shown


def test_the_gate_for_gpus_finds_a_slower_kernel_and_no_edited_one(card: Card) -> None:
    plain = "-p no:randomly -p no:benchmark -p no:xdist --bandwidth-max-time=0.05"
    smallest = ("--scale=1024", "--runs=1", "--kernel=copy", "--drop=10%", f"--pytest={plain}")
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "gpu_gate.py"), *smallest],
        env=card.environment({"L2_BYTES": 1 << 16}),
        capture_output=True,
        text=True,
        timeout=HANGS_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for told in ("unchanged: {'OK': 1}", "edited: {'OK': 1}", "10 % slower: {'REGRESSED': 1}"):
        assert f"{told}, 0 not measured" in done.stdout
