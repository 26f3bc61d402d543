"""Remember which opcodes tests execute, for the test that compares them with the table."""

from __future__ import annotations

import pytest

from pytest_bandwidth.features.traffic.ptx.interpreter import BatchInterpreter

# The tests of opcodes that the interpreter acts on, and the one that looks back on them.
ACTIONS = {f"test_ptx_{name}" for name in ("actions", "matrices", "mbarriers", "memory_opcodes")}
LAST = "test_ptx_table_coverage"
_EXECUTED: set[str] = set()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what looks back on the others last."""
    items.sort(key=lambda item: item.path.stem == LAST)


@pytest.fixture
def executed(request: pytest.FixtureRequest) -> set[str]:
    """Return the opcodes of basic blocks that any lane entered; skip where only some of the tests are asked for."""
    asked, there = request.config, {item.path.stem for item in request.session.items}
    if asked.option.keyword or any("::" in one for one in asked.args) or not there >= ACTIONS:
        pytest.skip("looks back on other tests: run all of its folder in one process")
    return _EXECUTED


@pytest.fixture(autouse=True)
def _remembered(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.path.stem in ACTIONS:
        run_block = BatchInterpreter._run_block

        def remembering(interpreter: BatchInterpreter, block: object, number: int, mask: object) -> None:
            kernel = interpreter.kernel
            steps = (*kernel.blocks[number].steps, kernel.blocks[number].end)
            _EXECUTED.update(kernel.sites[step.site].opcode for step in steps if step is not None)
            run_block(interpreter, block, number, mask)

        monkeypatch.setattr(BatchInterpreter, "_run_block", remembering)
