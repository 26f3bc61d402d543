"""Find the fenced blocks of README and docs, their commands, and the examples in the hooks' docstrings."""

from __future__ import annotations

import glob
import inspect
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from pytest_bandwidth import hooks

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

STAND_IN, VARIES = "tests stand in for ", "varies: "
# What differs from run to run: in a summary's table, and in the message of a failure.
_VARYING = {
    "table": (
        r"GB/s( share)?( bound by)?( against baseline detects)?",
        r"\d[\d.]{2,}( \d+ % of (probe|peak))?( [a-z]+)?( [-+]\d[\d.]* % on \d[\d.]* (GB/s|% of probe) ≥ \d[\d.]* %)?",
    ),
    "failure": (
        r"\d[\d.]* GB/s( \([\d.]+ % of the probe's [\d.]+ GB/s\))?",
        r"± \d[\d.]* %\)( vs\. probe [\d.]+ %, was [\d.]+ %)?",
        r"\d[\d.]* (%|ms|µs)",
        r"[0-9a-f]{10}",
        r"\d+ pairs",
    ),
}
_FENCE = re.compile(r"(?:^<!-- (?P<mark>[^\n]*?) -->\n)?^```(?P<kind>\S*)[^\n]*\n(?P<text>.*?)^```$", re.S | re.M)
_FILE = re.compile(r"^(?:#|//) ([\w./-]+\.\w+)\n")
_IN_TEXT = re.compile(r"`((?:pytest|pytest-bandwidth|python|make) [^`\n…]+)`")
_LOOP = re.compile(r"for (\w+) in ([\w ]+); do (.*); done")


@dataclass(frozen=True)
class Block:
    """Hold a block. kind: the fence's language, ``{name}`` for a directive. mark: the comment on the line before."""

    page: str
    number: int
    kind: str
    text: str
    mark: str

    @property
    def file(self) -> str | None:
        """Return the file that a first line such as ``# test_x.py`` says it is."""
        found = _FILE.match(self.text)
        return found[1] if found else None

    @property
    def lacking(self) -> str:
        """Return what the block asks for that its test stands in for; "" where it runs as it is."""
        return self.mark.removeprefix(STAND_IN) if self.mark.startswith(STAND_IN) else ""

    @property
    def exit_status(self) -> int:
        return int(self.mark.removeprefix("exits with ")) if self.mark.startswith("exits with ") else 0

    def __str__(self) -> str:
        return f"{self.page}-{self.number}"


def commands_in_text() -> list[str]:
    """Return whole commands that stand between backticks outside of fenced blocks, each once."""
    texts = (_FENCE.sub("", page.read_text(encoding="utf-8")) for page in PAGES)
    return sorted({command for text in texts for command in _IN_TEXT.findall(text)})


def blocks() -> Iterator[Block]:
    for page in PAGES:
        for number, found in enumerate(_FENCE.finditer(page.read_text(encoding="utf-8"))):
            yield Block(page.name, number, found["kind"], found["text"], found["mark"] or "")


def installations() -> list[str]:
    """Return how pip is asked to install this project, each once: ``install 'pytest-bandwidth[cpu]'``."""
    found = {c for page in PAGES for c in re.findall(r"\bpip (install [^\n#`]*[^\n #`])", page.read_text("utf-8"))}
    return sorted(command for command in found if "pytest-bandwidth" in command)


BLOCKS = list(blocks())


def commands(text: str) -> list[str]:
    """Return the commands of a console block, without comments, loops unrolled."""
    found: list[str] = []
    for line in text.splitlines():
        bare = re.sub(r"(^|\s)#.*", "", line).strip()
        if not bare:
            continue
        loop = _LOOP.fullmatch(bare)
        if loop:
            found += [loop[3].replace(f"${loop[1]}", value) for value in loop[2].split()]
        else:
            found.append(bare)
    return found


def words(command: str, folder: Path) -> list[str]:
    """Return the command's words, with ``?`` and ``*`` expanded in `folder` as a shell does, but not within quotes."""
    found: list[str] = []
    for raw, word in zip(shlex.split(command, posix=False), shlex.split(command), strict=True):
        matches = sorted(glob.glob(word, root_dir=folder)) if re.search(r"[?*]", word) and raw == word else []
        found += matches or [word]
    return found


def printed(block: Block) -> re.Pattern[str]:
    """Compile the text block to what must be printed, spaces and line ends alike.

    The line before a block may say what varies, ``<!-- varies: table -->``: where one of those patterns matches the
    block, anything that it matches will do.
    """
    given = _VARYING[block.mark.removeprefix(VARIES)] if block.mark else ()
    rest, expected, used = plain(block.text), "", set()
    while rest:
        for regex in given:
            if found := re.match(regex, rest):
                expected, rest = expected + f"(?:{regex})", rest[found.end() :]
                used.add(regex)
                break
        else:
            expected, rest = expected + re.escape(rest[0]), rest[1:]
    assert used == set(given), f"{block}: found no text for {set(given) - used}, expected each pattern to match some"
    return re.compile(expected)


def plain(text: str) -> str:
    """Return the text with every run of spaces and line ends as one space."""
    return " ".join(text.split())


def example_of(name: str) -> str:
    """Return the code of a hook's example."""
    return dedent(inspect.getdoc(getattr(hooks, f"pytest_bandwidth_{name}")).partition("::\n")[2])
