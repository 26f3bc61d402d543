"""Remember which opcodes tests execute, for the test that compares them with the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_bandwidth.features.traffic.ptx.interpreter import BatchInterpreter

# The tests of opcodes that the interpreter acts on, and the one that looks back on them.
ACTIONS, LAST = (
    {
        "test_ptx_actions",
        "test_ptx_cluster_opcodes",
        "test_ptx_matrices",
        "test_ptx_mbarriers",
        "test_ptx_memory_opcodes",
    },
    "test_ptx_table_coverage",
)


class Executed:
    """Collect the opcodes of basic blocks that any lane entered, and the names of tests that ran and that there are."""

    def __init__(self) -> None:
        self.opcodes: set[str] = set()
        self.ran: set[str] = set()
        self.all: set[str] = set()

    @property
    def complete(self) -> bool:
        return self.ran == self.all and all(any(f"{name}.py::" in test for test in self.all) for name in ACTIONS)


_EXECUTED = Executed()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order tests before options deselect any: what looks back on the others runs last."""
    _EXECUTED.all = {i.nodeid for i in items if i.path.stem in ACTIONS and i.path.parent == Path(__file__).parent}
    items.sort(key=lambda item: item.path.stem == LAST)


@pytest.fixture
def executed() -> Executed:
    return _EXECUTED


@pytest.fixture(autouse=True)
def _remembered(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.path.stem in ACTIONS:
        run_block = BatchInterpreter._run_block

        def remembering(interpreter: BatchInterpreter, block: object, number: int, mask: object) -> None:
            kernel = interpreter.kernel
            steps = (*kernel.blocks[number].steps, kernel.blocks[number].end)
            _EXECUTED.opcodes.update(kernel.sites[step.site].opcode for step in steps if step is not None)
            run_block(interpreter, block, number, mask)

        monkeypatch.setattr(BatchInterpreter, "_run_block", remembering)
        _EXECUTED.ran.add(request.node.nodeid)
