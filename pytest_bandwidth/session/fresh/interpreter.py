"""What this process's Python was told on its command line: `-O`, `-W error`, `-X dev` and their like."""

from __future__ import annotations

import sys
from collections.abc import Sequence

_PROGRAM_FOLLOWS = "cm"
_VALUE_FOLLOWS = "WX"


def interpreter_options(command: Sequence[str] = ()) -> list[str]:
    """The options between the interpreter and its program, as they were given.

    command: another command line than this process's, the interpreter first.
    """
    given = iter((command or sys.orig_argv)[1:])
    options: list[str] = []
    for argument in given:
        if argument.startswith("--"):  # the one there is, --check-hash-based-pycs, has a value
            options += [argument, next(given, "")]
            continue
        letters = argument[1:] if argument.startswith("-") else ""
        end = next((at for at, letter in enumerate(letters) if letter in _PROGRAM_FOLLOWS + _VALUE_FOLLOWS), None)
        if end is None and letters:
            options.append(argument)
        elif end is not None and letters[end] in _VALUE_FOLLOWS:
            options += [argument] if letters[end + 1 :] else [argument, next(given, "")]
        else:
            return options + [f"-{letters[:end]}"] * bool(letters[:end])
    return options
