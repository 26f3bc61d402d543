"""Hold what the fleet's modules hand to one another: a card, what it shall run, what became of that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Card:
    """Hold one GPU of the cluster, or one node.

    number: its own within the run. name: as sentences name it: ``host GPU 3``, once Ray has assigned the GPU.
    node: as sentences name it. node_id: Ray's. host, address: the node's. model: of its GPUs, as Ray knows it; "" where
    it does not. gpus: how many its task reserves.
    """

    number: int
    name: str
    node: str
    node_id: str
    host: str
    address: str
    model: str
    gpus: int


@dataclass(frozen=True, slots=True)
class Task:
    """Hold what every card runs.

    arguments: of pytest. folder: the checkout on the card's node; None for the one that Ray ships. python: the
    interpreter there; None for the one that Ray runs. timeout_seconds: of pytest. baseline: the name of the caller's
    file or folder, None without one; files: what it holds, by path from the folder that it lies in.
    """

    arguments: tuple[str, ...]
    folder: str | None
    python: str | None
    timeout_seconds: float
    baseline: str | None = None
    is_folder: bool = False
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Returned:
    """Hold what came back from a card's node: `on_node.Runner.run` says what each is."""

    status: int | None
    seconds: float
    tail: tuple[str, ...] = ()
    document: bytes | None = None
    document_bytes: int = 0
    evidence: bytes | None = None
    plugin: str | None = None
    python: str = ""
    free_bytes: int | None = None
    ray_processors: float | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """Say that nothing came back: why, whether another attempt on that node may give more, and what Ray said last."""

    reason: str
    can_retry: bool
    tail: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CardNow:
    """Hold what a card does now. state: waits or runs; test: that it ran last, "" before the first; seconds: in it."""

    card: Card
    state: str
    test: str
    seconds: float


@dataclass(frozen=True, slots=True)
class CardRow:
    """Hold a card's row of the fleet's table and document.

    state: measured, failed (a test did) or missing. reason, tail: why, and the last lines of its output. device: a
    document's. statuses, gbps: of its run, by verdict and by test. ray_processors: what Ray's own processes on its node
    used before it began; None where that is not known.
    """

    card: Card
    state: str
    seconds: float
    attempts: int
    reason: str = ""
    tail: tuple[str, ...] = ()
    device: Mapping[str, Any] | None = None
    statuses: Mapping[str, int] = field(default_factory=dict)
    gbps: Mapping[str, float] = field(default_factory=dict)
    ray_processors: float | None = None
