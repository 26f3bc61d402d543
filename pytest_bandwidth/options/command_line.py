"""Tell how a process was started, without what of its command line may be secret."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_bandwidth.domain.address import masked
from pytest_bandwidth.options.options import declared
from pytest_bandwidth.options.settings import flag
from pytest_bandwidth.registry import hooks

# So much is kept.
LONGEST_COMMAND = 1000


def own_command(argv: Sequence[str]) -> str:
    """Keep of a command line the program and this plugin's own options: others may hold secrets, as addresses may.

    >>> own_command(["/bin/pytest", "--token=x", "--bandwidth-device", "cpu", "tests"])
    'pytest … --bandwidth-device cpu …'
    """
    kept = [Path(argv[0]).name if Path(argv[0]).name != "__main__.py" else "python -m pytest"]
    values = {flag(name) for name, option in declared(hooks()).items() if option.placeholder is not None}
    own_value = False
    for argument in argv[1:]:
        if own_value or argument.startswith("--bandwidth-"):
            kept.append(masked(argument))
        elif kept[-1] != "…":
            kept.append("…")
        own_value = argument in values
    return " ".join(kept)[:LONGEST_COMMAND]
