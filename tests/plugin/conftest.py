"""A user's project in a temporary folder, run by real pytest processes on the host's memory."""

import json
from pathlib import Path

import pytest

QUICK = ("--bandwidth-device=cpu", "--bandwidth-max-time=0.05", "--bandwidth-min-samples=5")


class Project:
    """Files and runs of one project."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path: Path = pytester.path
        pytester.makefile(".ini", pytest="[pytest]\naddopts = -p no:randomly\n")

    def file(self, name: str, text: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def run(self, *args: str, quick: bool = True) -> pytest.RunResult:
        """`pytest` as a user starts it, with the smallest budgets unless told otherwise."""
        return self.pytester.runpytest_subprocess(*(QUICK if quick else ()), *args)

    def document(self, *args: str, quick: bool = True) -> dict:
        """The JSON document of one more run."""
        self.run("--bandwidth-json=run.json", *args, quick=quick)
        return json.loads((self.path / "run.json").read_text(encoding="utf-8"))


@pytest.fixture
def project(pytester: pytest.Pytester) -> Project:
    return Project(pytester)
