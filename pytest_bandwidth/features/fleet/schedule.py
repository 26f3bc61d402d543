"""Run the task on every card: wait for them, end what takes too long, try again what may yet succeed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_bandwidth.domain.units import counted, format_seconds
from pytest_bandwidth.features.fleet.cards import Card, CardNow, CardResult, Lost, Returned, Task
from pytest_bandwidth.features.fleet.cluster import Attempt, Cluster

# A card's node ends its own child after the time-out, and has so long to say so: it may be slow, or silent for ever.
ANSWER_SECONDS = 120.0
_TURN_SECONDS = 1.0


@dataclass(slots=True)
class _Running:
    attempt: Attempt
    number: int
    begun: float
    since: float
    has_card: bool = False


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
        self._running: list[_Running] = []

    def run(self, cards: Sequence[Card], on_result: Callable[[CardResult], None]) -> None:
        """Run the task on every card. on_result is called for each, when it has ended."""
        self._kept = self._cluster.keep(self._task)
        now = time.monotonic()
        # A card stays reserved until all have ended: else the next task of its node might get it once more.
        self._running = [_Running(self._cluster.start(card, self._kept), 1, now, now) for card in cards]
        done: list[Attempt] = []
        while self._running:
            ended = dict(self._cluster.wait([one.attempt for one in self._running], _TURN_SECONDS))
            for one in list(self._running):
                outcome = ended.get(one.attempt) or self._overdue(one)
                if outcome is None:
                    continue
                self._running.remove(one)
                if self._tries_again(one, outcome):
                    continue
                done.append(one.attempt)
                on_result(CardResult(one.attempt.card, outcome, one.number, time.monotonic() - one.begun))
            if self._watch is not None:
                self._cluster.ask_tests([one.attempt for one in self._running])
                self._watch([self._seen(one) for one in self._running])
        self._cluster.stop(done)

    def unfinished(self) -> list[Card]:
        """Return the cards that have no result, with the names that they have by now."""
        return [one.attempt.card for one in self._running]

    def _seen(self, one: _Running) -> CardNow:
        state = "runs" if one.has_card else "waits"
        return CardNow(one.attempt.card, state, one.attempt.test, time.monotonic() - one.since)

    def _overdue(self, one: _Running) -> Lost | None:
        """Return what is to be said of an attempt that takes too long; None as long as it does not."""
        now, limit = time.monotonic(), self._task.timeout_seconds
        if one.attempt.has_card and not one.has_card:
            one.has_card, one.since = True, now
            self._say(f"{one.attempt.card.name}: runs")
        if not one.has_card:
            if now - one.since <= limit:
                return None
            return Lost(
                f"the card was not free, or Ray could start no process there, for {format_seconds(limit)}",
                can_retry=False,
            )
        if now - one.since <= limit + ANSWER_SECONDS:
            return None
        return Lost(f"the node did not answer for {format_seconds(limit + ANSWER_SECONDS)}", can_retry=False)

    def _tries_again(self, one: _Running, outcome: Returned | Lost) -> bool:
        """Start the next attempt where there is one to be had and the last may have been bad luck."""
        if one.number > self._retries:
            return False
        if isinstance(outcome, Lost):
            if not outcome.can_retry:
                return False
        elif outcome.document is not None or outcome.plugin == "":
            return False
        self._say(f"{one.attempt.card.name}: {counted(self._retries + 1 - one.number, 'attempt')} left, again")
        self._cluster.stop([one.attempt])
        now = time.monotonic()
        again = self._cluster.start(one.attempt.card, self._kept)
        self._running.append(_Running(again, one.number + 1, one.begun, now))
        return True
