"""Which of a suspect's fresh processes a confirmation rests on.

Some machines change their pace from minute to minute. A share of a probe that is faster than any of the baseline's
tells of memory rather than of the kernel, so processes at the baseline's pace outweigh those on a faster device.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_bandwidth.domain.baseline import Figure
from pytest_bandwidth.domain.device_change import Known, is_faster
from pytest_bandwidth.domain.figures import Figures

# Fresh processes at the baseline's pace that outweigh all others.
ENOUGH_ALIKE = 2


def processes_that_count(fresh: Sequence[Figures], known: Known | None, confirm: int) -> list[Figures]:
    """Those at the baseline's pace where there are enough of them, else all; `confirm`: how many were asked for."""
    alike = _at_known_pace(fresh, known)
    return alike if len(alike) >= enough_alike(confirm) else list(fresh)


def enough_alike(confirm: int) -> int:
    """How many fresh processes at the baseline's pace do, where `confirm` were asked for."""
    return min(ENOUGH_ALIKE, confirm)


def lacks_likes(fresh: Sequence[Figures], known: Known | None, figure: Figure, confirm: int) -> bool:
    """Whether a suspect that is judged by its share of the probe met a faster device in too many fresh processes."""
    if figure != "relative" or not fresh:
        return False
    return len(_at_known_pace(fresh, known)) < enough_alike(confirm)


def _at_known_pace(fresh: Sequence[Figures], known: Known | None) -> list[Figures]:
    """The processes beside whose kernels the device was no faster than beside the baseline's."""
    if known is None:
        return list(fresh)
    return [f for f in fresh if f.probe_gbps is None or not is_faster(f.probe_gbps, known)]
