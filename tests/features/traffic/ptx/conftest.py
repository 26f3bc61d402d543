"""Remember which opcodes the lab's tests execute, for the test that compares them with the table."""

from __future__ import annotations

from pathlib import Path

import pytest
from opcode_lab import LAB, LAST, Lab

from pytest_bandwidth.features.traffic.ptx.interpreter import BatchInterpreter

_LAB = Lab()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order tests before options deselect any: what looks back on the others runs last."""
    for item in items:
        if item.path.stem in LAB and item.path.parent == Path(__file__).parent:
            _LAB.all_of_it.add(item.nodeid)
            _LAB.modules.add(item.path.stem)
    items.sort(key=lambda item: item.path.stem == LAST)


@pytest.fixture
def lab() -> Lab:
    return _LAB


@pytest.fixture(autouse=True)
def _remembered(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.path.stem in LAB:
        run_block = BatchInterpreter._run_block

        def remembering(interpreter: BatchInterpreter, block: object, number: int, mask: object) -> None:
            kernel = interpreter._kernel
            steps = (*kernel.blocks[number].steps, kernel.blocks[number].end)
            _LAB.executed.update(kernel.sites[step.site].opcode for step in steps if step is not None)
            run_block(interpreter, block, number, mask)

        monkeypatch.setattr(BatchInterpreter, "_run_block", remembering)
        _LAB.ran.add(request.node.nodeid)
