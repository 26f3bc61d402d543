"""The emulated card for tests; all of them skip, with the reason, where it cannot be had."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import stand_in_profilers
from card_processes import TESTS, Card

sys.path.append(str(TESTS))  # for emulated_card


@pytest.fixture(scope="session")
def new_card(counting: dict[str, str]) -> Callable[[Path], Card]:
    """Make cards, each with its state in a folder of its own."""
    pytest.importorskip("cupy", exc_type=ImportError)
    pytest.importorskip("cuda.pathfinder")
    from emulated_card.cudart import check_version
    from emulated_card.kernels import NoCompiler
    from emulated_card.libraries import built_libraries

    try:
        check_version()
        built_libraries()
    except (ImportError, NoCompiler) as reason:
        pytest.skip(f"the emulated card cannot run here: {reason}")

    def make(folder: Path) -> Card:
        (folder / "card").mkdir()
        return Card(folder / "card", counting)

    return make


@pytest.fixture
def card(new_card: Callable[[Path], Card], tmp_path: Path) -> Card:
    return new_card(tmp_path)


@pytest.fixture(scope="module")
def shared_card(new_card: Callable[[Path], Card], tmp_path_factory: pytest.TempPathFactory) -> Card:
    """One card for a module, whose tests look at what one process told."""
    return new_card(tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="session")
def ncu(new_card: Callable[[Path], Card], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment of processes that find a stand-in ncu, and what NVTX loads for it."""
    del new_card  # there is a compiler, then
    from emulated_card.kernels.build import compiler

    folder = tmp_path_factory.mktemp("ncu")
    stand_in_profilers.install(folder, "ncu")
    source, library = TESTS / "support" / "nvtx_injection.c", folder / "nvtx_injection.so"
    subprocess.run([compiler(), "-shared", "-fPIC", "-O1", "-Werror", "-o", library, source], check=True)
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "NVTX_INJECTION64_PATH": str(library)}
