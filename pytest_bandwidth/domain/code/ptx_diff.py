"""Show how a kernel's PTX changed: a diff for people, and what became of its accesses to global memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

CONTEXT_LINES = 3
MOST_LINES = 400
# Of a line: tables of constants are written in one.
LONGEST_LINE = 400
# Past so many lines a side, lines that occur often are not aligned: that would take minutes.
ALIGNED_LINES = 3000
ONLY_REGISTERS = "the same instructions, in other registers"
_NUMBER = re.compile(r"(?<=[%$][A-Za-z])\d+|(?<=%[A-Za-z]{2})\d+|(?<=%[A-Za-z]{3})\d+")
_ACCESS = re.compile(r"\b(ld|st)\.(?:\w+\.)*?global\.(?:[\w:]+\.)*?(?:v([248])\.)?[bsuf](8|16|32|64|128)\b")
_KINDS = {"ld": "loads", "st": "stores"}


def ptx_diff(old: str, new: str) -> str:
    """Return the lines that differ, those taken out with ``-`` and those put in with ``+``, and some around them.

    A register that merely has another number makes no difference.
    """
    before, after = old.splitlines(), new.splitlines()
    old_lines, new_lines = ([_NUMBER.sub("", line) for line in lines] for lines in (before, after))
    matcher = SequenceMatcher(None, old_lines, new_lines, autojunk=max(len(before), len(after)) > ALIGNED_LINES)
    lines = [line for group in matcher.get_grouped_opcodes(CONTEXT_LINES) for line in _hunk(group, before, after)]
    if not lines and before != after:
        return ONLY_REGISTERS
    if len(lines) > MOST_LINES:
        lines = [*lines[:MOST_LINES], f"… {len(lines) - MOST_LINES} more lines"]
    return "\n".join(line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}…" for line in lines)


def _hunk(
    group: Sequence[tuple[str, int, int, int, int]], before: Sequence[str], after: Sequence[str]
) -> Iterator[str]:
    yield f"@@ line {group[0][1] + 1} → {group[0][3] + 1} @@"
    for tag, start, end, new_start, new_end in group:
        if tag == "equal":
            yield from (f"  {line}" for line in after[new_start:new_end])
            continue
        yield from (f"- {line}" for line in before[start:end])
        yield from (f"+ {line}" for line in after[new_start:new_end])


def access_changes(old: str, new: str) -> str | None:
    """Say which loads and stores of global memory, by width, stand in the code more or less often; None where none."""
    before, after = _accesses(old), _accesses(new)
    said = [
        f"{_KINDS[kind]} of {bits} bits {before[kind, bits]} → {after[kind, bits]}"
        for kind, bits in sorted({*before, *after})
        if before[kind, bits] != after[kind, bits]
    ]
    return f"in its code, {', '.join(said)}" if said else None


def _accesses(ptx: str) -> Counter[tuple[str, int]]:
    return Counter((kind, int(of or 1) * int(bits)) for kind, of, bits in _ACCESS.findall(ptx))
