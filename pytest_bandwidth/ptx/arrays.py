"""The name that annotations use for NumPy arrays.

NumPy's stubs give Any for arithmetic on arrays whose dtype is not known, as nearly all are here (the PTX type decides
it at
run time): a stricter alias would find nothing and ask for a cast on every line.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Array: TypeAlias = Any
