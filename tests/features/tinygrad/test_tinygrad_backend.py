"""Which backends open, what they are called, and why others do not."""

import sys
from importlib import metadata
from types import SimpleNamespace

import pytest

from pytest_bandwidth.devices.open import open_device
from pytest_bandwidth.domain.device import device_plain, identity_of
from pytest_bandwidth.domain.errors import DeviceUnavailable
from pytest_bandwidth.features.tinygrad.backend import Backend, identify, open_backend


def test_a_backend_has_tinygrads_own_name_and_a_card_beyond_the_first_its_number(backend):
    assert [open_backend(name).name for name in ("python", "PYTHON:0")] == ["PYTHON"] * 2
    assert identify(open_backend("PYTHON:1")).facts["index"] == 1
    assert identify(backend).facts["index"] == 0
    assert open_device("tinygrad:python:1").identity.option == "tinygrad:PYTHON:1"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("NULL", r"^found tinygrad:NULL, which runs no kernel and so takes no time; expected tinygrad:BACKEND or "),
        (
            "FOO",
            r"^found tinygrad:FOO, which is not a backend of tinygrad's; expected tinygrad:BACKEND or .* METAL, AMD",
        ),
        (
            "DISK",
            r"^tinygrad:DISK does not compute here \(\w+.*\): python -m tinygrad\.device lists the backends that do$",
        ),
    ],
)
def test_what_computes_nothing_is_refused_in_one_line(name, said):
    with pytest.raises(DeviceUnavailable, match=said) as told:
        open_backend(name)
    assert "\n" not in str(told.value)


def test_a_tinygrad_that_is_missing_or_too_old_is_named(monkeypatch):
    for found in ("0.13.0", "1.0"):
        monkeypatch.setattr(metadata, "version", lambda _name, found=found: found)
        open_backend("PYTHON")
    for found in ("0.12.9", "0.9"):
        monkeypatch.setattr(metadata, "version", lambda _name, found=found: found)
        said = rf"^found tinygrad {found}, expected 0\.13 or newer: pip install -U"
        with pytest.raises(DeviceUnavailable, match=said):
            open_backend("PYTHON")
    monkeypatch.setitem(sys.modules, "tinygrad", None)
    with pytest.raises(DeviceUnavailable, match=r"needs tinygrad: pip install 'pytest-bandwidth\[tinygrad\]'$"):
        open_device("tinygrad:PYTHON")


def test_the_identity_names_backend_and_processor_and_opens_the_same_again(backend):
    identity = identify(backend)
    assert identity.name.endswith(" (tinygrad PYTHON)")
    assert identity.settings["backend"] == "PYTHON"
    assert identity.settings["renderer"] == "Python"
    assert identity.facts["tinygrad"] == metadata.version("tinygrad")
    assert identity.on_host, "the host's clock times it, and its other processes disturb it"
    assert not identity.on_gpu
    assert not identity.counts_only
    assert identity.option == "tinygrad:PYTHON"
    assert identity_of(device_plain(identity, None)).option == "tinygrad:PYTHON"


@pytest.mark.parametrize(
    ("told", "name"),
    [({"arch": "gfx1100"}, "gfx1100"), ({"arch": "", "device_name": " Some  GPU\0"[:-1]}, "Some GPU"), ({}, "AMD")],
)
def test_a_card_is_named_as_far_as_tinygrad_tells(tinygrad, told, name):
    """Of backends whose cards are not at hand; the attributes are those of tinygrad's devices."""
    opened = SimpleNamespace(renderer=object(), **told)
    first, second = (identify(Backend(f"AMD{number}", tinygrad, opened)) for number in ("", ":1"))
    assert first.name == second.name == f"{name} (tinygrad AMD)"
    assert first.settings == second.settings, "cards of one model are comparable"
    assert first.serial != second.serial
    assert second.option == "tinygrad:AMD:1"
