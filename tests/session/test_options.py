"""The options' and the marker's help."""

from dataclasses import fields

from pytest_bandwidth.domain.judging.marker import MarkerOptions
from pytest_bandwidth.session.options import marker_help


def test_the_marker_tells_all_of_its_arguments():
    assert all(f" {field.name}: " in marker_help() for field in fields(MarkerOptions))


def test_without_docstrings_the_marker_is_declared_all_the_same(monkeypatch):
    """As under python -OO."""
    monkeypatch.setattr(MarkerOptions, "__doc__", None)
    assert marker_help().startswith("bandwidth(min_gbps=, ")
