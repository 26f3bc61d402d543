"""The quick start of docs/frameworks.md, where PyTorch is installed."""

import pytest
from documented import BLOCKS


def test_the_quick_start_of_frameworks_passes(pytester):
    pytest.importorskip("torch", reason="torch is not installed: docs/frameworks.md")
    (block,) = [b for b in BLOCKS if b.page == "frameworks.md" and b.kind == "python"]
    pytester.makepyfile(test_softmax=block.text)
    pytester.runpytest_inprocess("--bandwidth-device=cpu").assert_outcomes(passed=1)
