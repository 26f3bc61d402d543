"""What the driver and NVML tell, by CuPy's own calls and nvidia-ml-py's; and figures that repeat."""

from typing import Any

import pytest
from card_processes import Card

pytestmark = pytest.mark.smoke


@pytest.fixture(scope="module")
def seen(shared_card: Card) -> Any:
    return shared_card.told("kernels", EVENT_REASONS=64, NVML="nvmlDeviceGetMemoryBusWidth=3", NAME="Some GPU")


def test_kernels_see_the_modules_variables(seen: Any) -> None:
    assert seen["constants"] == [9, 8, 7, 6] * 2
    assert seen["written variable"] == [104, 103, 102, 101] * 2


def test_the_driver_describes_kernels(seen: Any) -> None:
    assert 1 < seen["registers"] < 256
    assert seen["occupancy"] == 8  # of 256 threads
    assert seen["no such kernel"].startswith("CUDA_ERROR_NOT_FOUND")


def test_more_shared_memory_than_was_asked_for_is_refused(seen: Any) -> None:
    assert seen["shared refused"].startswith("CUDA_ERROR_INVALID_VALUE")


def test_cupys_own_kernels_run(seen: Any) -> None:
    assert seen["cupy's own"] == [499500, 3.0]


def test_the_environment_changes_the_card(seen: Any) -> None:
    assert seen["properties"] == ["Some GPU", 1 << 20, 10]
    assert seen["nvml"] == ["Some GPU", 64]
    assert seen["bus width"] == "Not Supported"


def test_figures_repeat_to_the_digit_and_differ_between_processes(
    card: Card, tmp_path_factory: pytest.TempPathFactory
) -> None:
    again = Card(tmp_path_factory.mktemp("another state"))
    first, second = card.told("figures"), card.told("figures")
    assert again.told("figures") == first
    assert len(set(first)) > 1
    assert second != first


def test_another_cupy_is_refused_in_one_line(card: Card) -> None:
    patched = "import emulated_card.cudart as c; c.KNOWN_CUPY = ('1.0',)\nimport cupy"
    done = card.run(["-c", patched], {})
    assert done.returncode == 1
    assert "the emulated card knows CuPy 1.0, found " in done.stderr
