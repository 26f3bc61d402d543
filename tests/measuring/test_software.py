"""The versions that a run records: of what this process has loaded, and of nothing else."""

import platform
import sys
from importlib import metadata
from types import ModuleType

import numpy
import pytest

from pytest_bandwidth.measuring.measurer import LONGEST_VERSION, loaded_versions

LIBRARIES = ("numba", "llvmlite", "cupy", "torch", "triton", "jax", "tinygrad")


@pytest.fixture
def only_numpy(monkeypatch):
    """None of the libraries is loaded but NumPy."""
    for name in LIBRARIES:
        monkeypatch.delitem(sys.modules, name, raising=False)


def installed_version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


@pytest.mark.usefixtures("only_numpy")
def test_what_is_loaded_is_named_with_its_version():
    assert loaded_versions() == {
        platform.system().lower(): platform.release(),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
    }


@pytest.mark.usefixtures("only_numpy")
def test_a_library_that_does_not_tell_its_version_has_that_of_what_is_installed(monkeypatch):
    installed = {name: found for name in LIBRARIES if (found := installed_version(name)) is not None}
    for name in LIBRARIES:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    found = loaded_versions()
    assert {name: found.get(name) for name in LIBRARIES} == {name: installed.get(name) for name in LIBRARIES}
    assert found["numba"] == metadata.version("numba")


@pytest.mark.usefixtures("only_numpy")
def test_a_version_is_a_text_and_short(monkeypatch):
    for name, version in (("torch", "2.9" + "0" * 100), ("numba", ("0", "61"))):
        module = ModuleType(name)
        module.__version__ = version
        monkeypatch.setitem(sys.modules, name, module)
    found = loaded_versions()
    assert found["torch"] == "2.9" + "0" * (LONGEST_VERSION - 3)
    assert "numba" not in found
