"""The tests that an arena runs in processes of its own (`arena_child`): the reference's results, then a candidate's."""

from __future__ import annotations

import importlib.util
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from pytest_bandwidth import Reference
from pytest_bandwidth.devices.numpy_arrays import resolve_dtype
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.domain.units import counted
from pytest_bandwidth.features.honest.arena_child import HERE, Child
from pytest_bandwidth.features.honest.arena_inputs import MOST_CASES, Case, Parameter
from pytest_bandwidth.fixture.bandwidth import Bandwidth

REFERENCE, CANDIDATE, ALONE = "reference", "candidate", "alone"
_DEFAULT_FUNCTION, _INPUTS = "run", "inputs"
_POISON = 0xA5


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    cases = metafunc.config.stash[HERE].cases
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case", cases or [], ids=map(str, range(len(cases or []))))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    del config, items


@pytest.fixture
def child(request: pytest.FixtureRequest) -> Child:
    return request.config.stash[HERE]
