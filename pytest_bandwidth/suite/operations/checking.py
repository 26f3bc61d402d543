"""Does an operation give what it should?"""

from __future__ import annotations

import numpy as np

from pytest_bandwidth.suite.operations.model import Case
from pytest_bandwidth.suite.operations.support import on_host


def poison(case: Case) -> None:
    """Fills the results with NaN, so that whatever a run leaves out shows."""
    for array in case.results.values():
        array.fill(np.nan)


def wrong_results(case: Case) -> list[str]:
    """One line per result that differs from its reference, with the worst element; empty where all agree.

    NaN agrees with NaN only, an infinity with itself only.
    """
    lines = []
    for name, reference in case.expected().items():
        result = np.asarray(on_host(case.results[name]), np.float64)
        reference = np.asarray(reference, np.float64)
        if result.shape != reference.shape:
            lines.append(f"{name} has shape {result.shape}, expected {reference.shape}")
            continue
        with np.errstate(invalid="ignore"):
            allowed = case.tolerance.absolute + case.tolerance.relative * np.abs(reference)
            error = np.abs(result - reference)
            same = (result == reference) | (np.isnan(result) & np.isnan(reference))
            agrees = same | (np.isfinite(reference) & (error <= allowed))
            excess = np.where(agrees, -1.0, np.nan_to_num(error - allowed, nan=np.inf))
        if not agrees.all():
            worst = np.unravel_index(int(np.argmax(excess)), result.shape)
            place = "".join(f"[{int(i)}]" for i in worst)
            lines.append(
                f"{name}{place} is {result[worst]:.9g}, expected {reference[worst]:.9g} ± {allowed[worst]:.2g}; "
                f"{int((~agrees).sum())} of {result.size} elements are wrong"
            )
    return lines
