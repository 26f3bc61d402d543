"""Name NumPy arrays for the type checker, and make them as large as others.

NumPy's stubs give Any for arithmetic on arrays whose dtype is not known, as nearly all are here (the PTX type decides
it at run time): a stricter alias would find nothing and ask for a cast on every line.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any


def spread(array: Array, shape: tuple[int, ...]) -> Array:
    """Do np.broadcast_to, which takes microseconds even where there is nothing to do."""
    return array if array.shape == shape else np.broadcast_to(array, shape)
