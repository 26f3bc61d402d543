"""The options and the marker's arguments: their help, and that each is read."""

from dataclasses import fields

from pytest_bandwidth.domain.judging.marker import MarkerOptions
from pytest_bandwidth.session.user.options import INI_ONLY, OPTIONS, marker_help
from pytest_bandwidth.session.user.settings import _MARKER_PARSERS, _PARSERS, Settings


def test_every_option_has_a_field_and_all_but_switches_a_parser():
    named = {name: placeholder for name, placeholder, _ in (*OPTIONS, *INI_ONLY)}
    assert {name.replace("-", "_") for name in named} == {field.name for field in fields(Settings)}
    assert {name for name, placeholder in named.items() if placeholder is not None} == set(_PARSERS)


def test_every_argument_of_the_marker_has_a_parser():
    assert {field.name for field in fields(MarkerOptions)} == set(_MARKER_PARSERS)


def test_the_marker_tells_all_of_its_arguments():
    assert all(f" {field.name}: " in marker_help() for field in fields(MarkerOptions))


def test_without_docstrings_the_marker_is_declared_all_the_same(monkeypatch):
    """As under python -OO."""
    monkeypatch.setattr(MarkerOptions, "__doc__", None)
    assert marker_help().startswith("bandwidth(min_gbps=, ")
