"""Let a run of one card of a fleet end when it shall: on an interrupt, and with the process that started it."""

from __future__ import annotations

import signal

import pytest

from pytest_bandwidth.features.fleet.card_places import CurrentTest, card_places


def configure_card(config: pytest.Config) -> None:
    """Set this process up; called before any test is collected."""
    places = card_places(config)
    if places is not None and places.current is not None:
        config.pluginmanager.register(CurrentTest(places.current))
    # Ray's threads block signals, and its processes ignore some: what they start inherits that.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
