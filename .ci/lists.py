"""Keep the lists of hashes of all purposes in one file: what several of them take is in it once.

    python .ci/lists.py test                    # print the list of a purpose, as pip takes it
    python .ci/lists.py --merge build/lock/*.txt    # write the file anew from a list for each purpose

Before each release in `requirements.txt` a comment names the purposes that take it.
"""

import re
import sys
from pathlib import Path

ALL = Path(__file__).with_name("requirements.txt")
HEAD = "# Written by `make lock`; `.ci/lists.py` prints the list of one purpose.\n"


def releases(text: str) -> list[str]:
    """Split a list into releases with their hashes."""
    return re.split(r"\n(?=\S)", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).strip())


def list_of(purpose: str) -> str:
    blocks = re.findall(r"^# (.*)\n((?:[^#].*\n)+)", ALL.read_text(encoding="utf-8").removeprefix(HEAD), re.MULTILINE)
    return "".join(release for purposes, release in blocks if purpose in purposes.split())


def merge(files: list[Path]) -> str:
    purposes: dict[str, list[str]] = {}
    for file in files:
        for release in releases(file.read_text(encoding="utf-8")):
            purposes.setdefault(release, []).append(file.stem)
    return HEAD + "".join(f"# {' '.join(purposes[release])}\n{release}\n" for release in sorted(purposes, key=_by_name))


def _by_name(release: str) -> tuple[str, str]:
    return release.partition("==")[0], release


if __name__ == "__main__":
    if sys.argv[1] == "--merge":
        ALL.write_text(merge([Path(file) for file in sys.argv[2:]]), encoding="utf-8")
    else:
        sys.stdout.write(list_of(sys.argv[1]))
