"""Offer what this project uses of cupti-python 12.8 to 13.4: records of the card's kernels, copies and fills."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from enum import IntEnum
from typing import Any

INVALID_OPERATION, MULTIPLE_SUBSCRIBERS = 7, 39


class ActivityKind(IntEnum):
    MEMCPY = 1
    MEMSET = 2
    KERNEL = 3
    CONCURRENT_KERNEL = 10
    MEMCPY2 = 22


class cuptiError(Exception):  # noqa: N801  # as the real one is named
    def __init__(self, status: int) -> None:
        self.status = status
        named = {INVALID_OPERATION: "INVALID_OPERATION", MULTIPLE_SUBSCRIBERS: "MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"}
        super().__init__(f"ERROR_{named[status]} ({status})")


class _Noted(ctypes.Structure):
    _fields_ = (
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("kind", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("stream", ctypes.c_uint64),
        ("name", ctypes.c_char * 128),
    )


class _Activity:
    """A record, which can be read while CUPTI hands over its buffer."""

    def __init__(self, noted: _Noted) -> None:
        self.kind, self.start, self.end = noted.kind, noted.start, noted.end
        self.device_id, self.stream_id = noted.device, noted.stream
        if noted.kind == ActivityKind.CONCURRENT_KERNEL:
            self.name = noted.name.decode()


_card = ctypes.CDLL("libcuda.so.1")
_callbacks: list[Callable[..., Any]] = []


def activity_register_callbacks(
    func_buffer_requested: Callable[[], tuple[int, int]], func_buffer_completed: Callable[[list[Any]], None]
) -> None:
    _callbacks[:] = func_buffer_requested, func_buffer_completed


def activity_enable(kind: int) -> None:
    if os.environ.get("EMULATED_CARD_CUPTI") == "taken":
        raise cuptiError(MULTIPLE_SUBSCRIBERS)
    _card.card_activity_enable(int(kind), 1)


def activity_disable(kind: int) -> None:
    _card.card_activity_enable(int(kind), 0)


def activity_flush_all(flag: int) -> None:
    """Hand over what has run; work that is queued has not."""
    del flag
    if not _callbacks:
        raise cuptiError(INVALID_OPERATION)
    requested, completed = _callbacks
    size, most = requested()
    assert size > 0
    assert most >= 0
    noted, activities = _Noted(), []
    while _card.card_activity_take(ctypes.byref(noted)):
        activities.append(_Activity(noted))
    if os.environ.get("EMULATED_CARD_CUPTI") != "mute":
        completed(activities)
    for activity in activities:
        vars(activity).clear()
