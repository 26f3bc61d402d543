"""Run the task on every card: wait for them, end what takes too long, try again what may yet succeed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from pytest_bandwidth.domain.units import counted, format_seconds
from pytest_bandwidth.features.fleet.cards import Card, CardNow, Lost, Returned, Task
from pytest_bandwidth.features.fleet.cluster import Attempt, Cluster

# A card's node ends its own child after the time-out, and has so long to say so: it may be slow, or silent for ever.
ANSWER_SECONDS = 120.0
_TURN_SECONDS = 1.0


class Schedule:
    """Follow the cards of one run.

    watch: called about every second with the cards that have not ended; None where nobody looks.
    """

    def __init__(
        self,
        cluster: Cluster,
        task: Task,
        retries: int,
        say: Callable[[str], None],
        watch: Callable[[list[CardNow]], None] | None = None,
    ) -> None:
        self._cluster, self._task, self._retries, self._say, self._watch = cluster, task, retries, say, watch
        self._kept: Any = None
        self._running: list[Attempt] = []

    def run(self, cards: Sequence[Card], on_result: Callable[[Card, Returned | Lost, int, float], None]) -> None:
        """Run the task on every card. on_result: called when one has ended, with its attempts and its seconds."""
        self._kept = self._cluster.keep(self._task)
        begun = time.monotonic()
        # A card stays reserved until all have ended: else the next task of its node might get it once more.
        self._running = [self._cluster.start(card, self._kept) for card in cards]
        done: list[Attempt] = []
        while self._running:
            ended = dict(self._cluster.wait(self._running, _TURN_SECONDS))
            for one in list(self._running):
                outcome = ended.get(one) or self._overdue(one)
                if outcome is None:
                    continue
                self._running.remove(one)
                if self._tries_again(one, outcome):
                    continue
                done.append(one)
                on_result(one.card, outcome, one.number, time.monotonic() - begun)
            if self._watch is not None:
                self._cluster.ask_tests(self._running)
                self._watch([_now(one) for one in self._running])
        self._cluster.stop(done)

    def unfinished(self) -> list[Card]:
        """Return the cards that have no result, with the names that they have by now."""
        return [one.card for one in self._running]

    def _overdue(self, one: Attempt) -> Lost | None:
        """Return what is to be said of an attempt that takes too long; None as long as it does not."""
        if one.has_card and not one.runs:
            one.runs, one.since = True, time.monotonic()
            self._say(f"{one.card.name}: runs")
        limit = self._task.timeout_seconds + (ANSWER_SECONDS if one.runs else 0.0)
        if time.monotonic() - one.since <= limit:
            return None
        why = "the node did not answer" if one.runs else "the card was not free, or Ray could start no process there,"
        return Lost(f"{why} for {format_seconds(limit)}", can_retry=False)

    def _tries_again(self, one: Attempt, outcome: Returned | Lost) -> bool:
        """Start the next attempt where there is one to be had and the last may have been bad luck."""
        if isinstance(outcome, Lost):
            can_retry = outcome.can_retry
        else:
            can_retry = outcome.document is None and outcome.plugin != ""
        if not can_retry or one.number > self._retries:
            return False
        self._say(f"{one.card.name}: {counted(self._retries + 1 - one.number, 'attempt')} left, again")
        self._cluster.stop([one])
        self._running.append(self._cluster.start(one.card, self._kept, one.number + 1))
        return True


def _now(one: Attempt) -> CardNow:
    return CardNow(one.card, "runs" if one.runs else "waits", one.test, time.monotonic() - one.since)
