"""Take the examples out of the hooks' docstrings, as users copy them."""

import inspect
from textwrap import dedent

from pytest_bandwidth import hooks


def example_of(name: str) -> str:
    """Return the code of a hook's example."""
    return dedent(inspect.getdoc(getattr(hooks, f"pytest_bandwidth_{name}")).partition("::\n")[2])
