"""Find a cluster's cards and run a task on every one of them: the only module that uses Ray."""

from __future__ import annotations

import os
import signal
import socket
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.units import counted, format_seconds
from pytest_bandwidth.features.fleet import on_node
from pytest_bandwidth.features.fleet.cards import Card, Lost, Returned, Task
from pytest_bandwidth.options import handed_over
from pytest_bandwidth.reports.text_safe import printable

MISSING = "the fleet needs Ray: pip install 'pytest-bandwidth[fleet]'"
# Never shipped: environments are built on the node, and histories are long.
NOT_SHIPPED = (".git", ".venv", "venv", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", "node_modules")
_MODEL = "accelerator_type:"
# Children get `on_node.ENDING_SECONDS` to end, and some more to return.
STOPPING_SECONDS = on_node.ENDING_SECONDS + 10.0
# Ray asks a silent node a few times before it calls it dead.
NODE_DEATH_SECONDS = 20.0
ASKING_SECONDS = 0.5
CONNECTING_SECONDS = 10.0
# A card's node ends its own child after the time-out, and has so long to report it: it may be slow, or never answer.
ANSWER_SECONDS = 120.0
_TURN_SECONDS = 1.0


@dataclass(eq=False, slots=True)
class Attempt:
    """Hold one attempt at a card's task: Ray's actor, and Ray's futures for when it has its card, and when it has run.

    number: of the card's attempts; since: when it began to wait for its card, or to run; runs: whether its start was
    reported.
    """

    card: Card
    actor: Any
    ready: Any
    ran: Any
    number: int
    since: float
    has_card: bool = False
    runs: bool = False


class Cluster:
    """Hold a connection to Ray; as a context manager, end the children of all attempts at exit, also after an error.

    folder: shipped to the nodes; None where they have it. environment: Ray's runtime_env for the rest. Raises
    UsageError where there is no cluster.
    """

    def __init__(self, address: str, folder: Path | None, environment: Mapping[str, Any] | None = None) -> None:
        _refuse_silent(address)
        # A test run sends no report to Ray's makers, unless the user asks for it.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            self._ray: Any = import_module("ray")
        # Ray imports other modules, such as AMD's, which raises a KeyError without its library.
        except (ImportError, LookupError, AttributeError, OSError, RuntimeError, TypeError, ValueError) as error:
            shown = f"{type(error).__name__}: {_first_line(error)}"
            raise UsageError(f"Ray is installed and cannot be imported: {shown}; try python -c 'import ray'") from None
        shipped = {} if folder is None else {"working_dir": str(folder), "excludes": list(NOT_SHIPPED)}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Ray's own, which the user cannot fix
                self._ray.init(
                    address=address,
                    runtime_env={**(environment or {}), **shipped},
                    log_to_driver=False,
                    logging_level="ERROR",
                    include_dashboard=False if address == "local" else None,
                )
        except (ConnectionError, ValueError, TypeError, RuntimeError, OSError) as error:
            raise UsageError(f"--address {address}: Ray cannot be used: {_first_line(error)}") from None
        for module in (on_node, handed_over):
            import_module("ray.cloudpickle").register_pickle_by_value(module)
        self._actor: Any = self._ray.remote(on_node.Runner)
        self._attempts: list[Attempt] = []
        self._on_terminate: Any = None

    def __enter__(self) -> Cluster:
        # SIGTERM acts as Ctrl-C, so that results so far are shown: CI and batch systems send it. Ray would exit on it.
        self._on_terminate = signal.signal(signal.SIGTERM, signal.default_int_handler)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self.stop(list(self._attempts))
        finally:
            self._ray.shutdown()
            signal.signal(signal.SIGTERM, self._on_terminate)

    def cards(self, per: str, only: Sequence[str]) -> list[Card]:
        """Return the cards to measure, or the nodes with per == "node", in a lasting order.

        only: models, host names, addresses or beginnings of node ids; all where it is empty. Raises UsageError where
        nothing is left.
        """
        nodes = sorted(
            (node for node in self._ray.nodes() if node["Alive"]),
            key=lambda node: (node["NodeManagerHostname"], node["NodeManagerAddress"], node["NodeID"]),
        )
        hosts = [str(node["NodeManagerHostname"]) for node in nodes]
        met: Counter[str] = Counter()
        found: list[Card] = []
        for node, host in zip(nodes, hosts, strict=True):
            met[host] += 1
            name = host if hosts.count(host) == 1 else f"{host}#{met[host]}"
            resources: Mapping[str, float] = node["Resources"]
            gpus, first = int(resources.get("GPU", 0)), len(found)
            model = next((key.removeprefix(_MODEL) for key in sorted(resources) if key.startswith(_MODEL)), "")
            about = (name, str(node["NodeID"]), host, str(node["NodeManagerAddress"]), model)
            if per == "node":
                found.append(Card(first, name, *about, gpus))
            else:
                found += [Card(first + i, f"{name} card {i + 1} of {gpus}", *about, 1) for i in range(gpus)]
        if not found:
            raise UsageError(
                f"found {counted(len(nodes), 'node')} without a GPU in Ray's resources, expected some: start Ray with "
                "--num-gpus, or measure the hosts with --per node"
            )
        chosen = [card for card in found if not only or any(_is(card, wanted) for wanted in only)]
        if not chosen:
            known = sorted({card.model for card in found if card.model} | {card.host for card in found})
            raise UsageError(f"--only {', '.join(only)}: found no such card, expected one of {', '.join(known[:20])}")
        return chosen

    def keep(self, task: Task) -> Any:
        """Store a task once, where all nodes can read it."""
        return self._ray.put(asdict(task))

    def start(self, card: Card, task: Any, number: int = 1) -> Attempt:
        """Start a task from `keep` when the card is free. The card stays reserved until `stop`."""
        affinity = import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
        actor = self._actor.options(
            num_cpus=0,
            num_gpus=card.gpus,
            max_concurrency=2,  # `stop` gets through while `run` waits
            scheduling_strategy=affinity(card.node_id, soft=False),
        ).remote()
        attempt = Attempt(card, actor, actor.ready.remote(), actor.run.remote(task), number, time.monotonic())
        self._attempts.append(attempt)
        return attempt

    def wait(self, attempts: Sequence[Attempt], seconds: float) -> list[tuple[Attempt, Returned | Lost]]:
        """Wait until an attempt ends or the time is over; return those that ended, and note which have their card."""
        waiting = [attempt.ready for attempt in attempts if not attempt.has_card] + [a.ran for a in attempts]
        done, _ = self._ray.wait(waiting, num_returns=1, timeout=seconds, fetch_local=False)
        done, _ = self._ray.wait(waiting, num_returns=len(waiting), timeout=0, fetch_local=False)
        finished = set(done)
        ended = []
        # One deadline for all: hundreds of cards may be lost at once.
        known_by = time.monotonic() + NODE_DEATH_SECONDS
        for attempt in attempts:
            if not attempt.has_card and attempt.ready in finished:
                with suppress(self._ray.exceptions.RayError):  # `ran` fails with the same error
                    visible = str(self._ray.get(attempt.ready))
                    attempt.has_card = True
                    if attempt.card.name != attempt.card.node:
                        attempt.card = replace(attempt.card, name=f"{attempt.card.node} GPU {visible}")
            if attempt.ran in finished:
                ended.append((attempt, self._result(attempt, known_by)))
        return ended

    def stop(self, attempts: Sequence[Attempt]) -> None:
        """End the attempts' children and give their cards back."""
        stopping = [attempt.actor.stop.remote() for attempt in attempts if attempt.has_card]
        if stopping:
            self._ray.wait(stopping, num_returns=len(stopping), timeout=STOPPING_SECONDS)
        for attempt in attempts:
            self._ray.kill(attempt.actor)
            self._attempts.remove(attempt)

    def _result(self, attempt: Attempt, known_by: float) -> Returned | Lost:
        try:
            answer: Mapping[str, Any] = self._ray.get(attempt.ran)
        except self._ray.exceptions.RayTaskError as error:
            return Lost(f"the node could not run it: {_last_line(error)}", can_retry=True)
        except self._ray.exceptions.RuntimeEnvSetupError as error:
            tail = tuple(str(error).strip().splitlines()[-on_node.TAIL_LINES :])
            return Lost(f"Ray cannot make its environment there: {_last_line(error)}", can_retry=True, tail=tail)
        except self._ray.exceptions.RayError as error:
            # Is its node dead? Ray may detect it some seconds after the node's tasks have failed.
            while any(node["NodeID"] == attempt.card.node_id and node["Alive"] for node in self._ray.nodes()):
                if time.monotonic() > known_by:
                    return Lost(f"Ray lost its process there: {_first_line(error)}", can_retry=True)
                time.sleep(ASKING_SECONDS)  # Ray reports a node's end only when it is asked
            return Lost("the node died", can_retry=False)
        return Returned(**{**answer, "tail": tuple(answer["tail"])})


def _refuse_silent(address: str) -> None:
    """Raise UsageError where nothing listens at an address: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECTING_SECONDS).close()
    except (OSError, OverflowError, ValueError) as error:  # the others: a port beyond 65535
        raise UsageError(f"--address {address}: no Ray answers there ({error}): start it, or name another") from None


def _is(card: Card, wanted: str) -> bool:
    names = (card.model, card.host, card.address, card.node)
    return wanted.lower() in (name.lower() for name in names) or (
        len(wanted) >= 6 and card.node_id.startswith(wanted.lower())
    )


def _first_line(error: BaseException) -> str:
    return printable(next(iter(str(error).strip().splitlines()), type(error).__name__)[:300])


def _last_line(error: BaseException) -> str:
    return [type(error).__name__, *str(error).strip().splitlines()][-1][:300]


@dataclass(slots=True)
class Schedule:
    """Run the task on every card of a run: wait for them, end slow attempts, repeat those that may yet succeed.

    running: attempts at the cards that have not ended.
    """

    cluster: Cluster
    task: Task
    retries: int
    say: Callable[[str], None]
    running: list[Attempt] = field(default_factory=list)

    def run(self, cards: Sequence[Card], on_result: Callable[[Card, Returned | Lost, int, float], None]) -> None:
        """Run the task on every card. on_result: called when one has ended, with its attempts and its seconds."""
        kept = self.cluster.keep(self.task)
        begun = time.monotonic()
        # A card stays reserved until all have ended: else another task of its node might get it again.
        self.running = [self.cluster.start(card, kept) for card in cards]
        done: list[Attempt] = []
        while self.running:
            ended = dict(self.cluster.wait(self.running, _TURN_SECONDS))
            for one in list(self.running):
                outcome = ended.get(one) or self._overdue(one)
                if outcome is None:
                    continue
                self.running.remove(one)
                if self._tries_again(one, outcome, kept):
                    continue
                done.append(one)
                on_result(one.card, outcome, one.number, time.monotonic() - begun)
        self.cluster.stop(done)

    def _overdue(self, one: Attempt) -> Lost | None:
        """Return the outcome of an attempt that takes too long; None for others. Report an attempt that has begun."""
        if one.has_card and not one.runs:
            one.runs, one.since = True, time.monotonic()
            self.say(f"{one.card.name}: runs")
        limit = self.task.timeout_seconds + (ANSWER_SECONDS if one.runs else 0.0)
        if time.monotonic() - one.since <= limit:
            return None
        why = "the node did not answer" if one.runs else "the card was not free, or Ray could start no process there,"
        return Lost(f"{why} for {format_seconds(limit)}", can_retry=False)

    def _tries_again(self, one: Attempt, outcome: Returned | Lost, kept: Any) -> bool:
        """Start the next attempt, if one is left and the last may have failed by chance; return whether it did."""
        if isinstance(outcome, Lost):
            can_retry = outcome.can_retry
        else:
            can_retry = outcome.document is None and outcome.plugin != ""
        if not can_retry or one.number > self.retries:
            return False
        self.say(f"{one.card.name}: {counted(self.retries + 1 - one.number, 'attempt')} left, again")
        self.cluster.stop([one])
        self.running.append(self.cluster.start(one.card, kept, one.number + 1))
        return True
