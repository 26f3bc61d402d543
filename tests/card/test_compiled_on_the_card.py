"""PTX and compiled libraries on the card, and variables of kernels that a test sets."""

from typing import Any

import pytest
from card_processes import MACHINE_CODE, PTX


@pytest.fixture(scope="module", params=[PTX, MACHINE_CODE], ids=["ptx", "machine code"])
def found(new_card: Any, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Any:
    return new_card(tmp_path_factory.mktemp("card")).told("compiled", env=request.param)


def test_ptx_is_known_by_its_instructions_and_variables_are_set_until_the_test_ends(found: Any) -> None:
    assert found["ptx"] == found["ptx text"]
    assert found["ptx"][0] is not None
    values, identities = zip(*found["set"], strict=True)
    assert values == ([5] * 4, [5, 6, 7, 8], [5, 6, 7, 8], [7, 8, 9, 10], [5] * 4)
    assert identities[0] == identities[4]
    assert len({identities[0], identities[1], identities[3]}) == 3
    assert identities[1] == identities[2]
    assert found["set in ptx"] == 2


@pytest.mark.parametrize("found", [MACHINE_CODE], indirect=True, scope="module")
def test_of_a_library_the_machine_code_of_the_card_is_launched(found: Any) -> None:
    assert found["library"] == found["cubin"]
    assert found["library"][0] is None
    assert found["library"][1] == found["text"][1]
    assert found["unknown"] == found["ptx"], "the driver refuses its machine code"


def test_code_for_other_cards_that_the_driver_refuses_or_that_cannot_be_set_is_told(found: Any) -> None:
    assert found["newer"].startswith("NotOnThisDevice: ")
    assert found["newer"].endswith(
        "holds no code of k for this GPU (sm_90): build it with -gencode arch=compute_90,code=sm_90"
    )
    assert found["bad"].startswith("KernelError: the source text: the driver cannot load its code of k (CUDA_ERROR_")
    assert found["error"] == "UsageError: kernel.set: found 32 bytes (float64) for c, expected an array of 16 bytes"
