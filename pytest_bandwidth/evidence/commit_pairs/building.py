"""Run the command that builds a revision: in its tree, for an environment of its own, and for so long."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.evidence.commit_pairs.checkout import Revision
from pytest_bandwidth.evidence.git import CODE_SUFFIXES
from pytest_bandwidth.evidence.processes.endings import descendant_environment, end_group, finish
from pytest_bandwidth.evidence.processes.interpreter import python_command

# Extensions with many kernels take the better part of an hour.
BUILD_SECONDS = 3600.0
_GRACE_SECONDS = 10.0
_LARGEST_TAIL_BYTES = 65_536
_FILES_NAMED, _ERRORS_NAMED, _LONGEST_SAID = 3, 3, 400
# What would have pip install elsewhere, and what has it ask or look for a newer pip.
_LEFT_OUT = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON", "PYTHONHOME")
_FOR_PIP = {"PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_USER": "0"}
# Sorted behind all that a build writes: what it installs is found before what this environment has.
_PATH_FILE = "zz_pytest_bandwidth.pth"


class BuildFailed(UsageError):
    """Raised where a revision cannot be built; the message says what the command said last."""


@dataclass(frozen=True, slots=True)
class Build:
    """Say how revisions are built. command: the shell's; folder: where it runs, as in the user's own tree."""

    command: str
    folder: Path


def build_of(command: str | None, folder: Path) -> Build | None:
    """Return how revisions are built; None where there is no command."""
    return None if command is None else Build(command, folder)


def make_environment(folder: Path) -> None:
    """Make a virtual environment on top of this one: it has all that this one has, and keeps what is installed there.

    pip itself is this environment's, run by the new one's interpreter: to install another takes seconds.
    """
    venv.EnvBuilder(symlinks=True).create(folder)
    places = [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    lines = [f"import site; site.addsitedir({place!r})" for place in places]
    libraries = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (libraries / _PATH_FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name in ("pip", "pip3"):
        script = folder / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(str(folder / "bin" / "python"))} -m pip "$@"\n')
        script.chmod(0o755)


def run_build(build: Build, revision: Revision, environment: Path, log: Path, seconds: float = BUILD_SECONDS) -> None:
    """Build the revision in its tree. Raises BuildFailed where that fails, or changes more than tree and environment.

    environment: made by `make_environment`; log: takes all that the command says.
    """
    counterpart = revision.counterpart(build.folder)
    folder = counterpart if counterpart is not None and counterpart.is_dir() else Path(revision.tree)
    variables = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
    variables["PATH"] = f"{environment / 'bin'}{os.pathsep}{variables.get('PATH', os.defpath)}"
    variables |= {"VIRTUAL_ENV": str(environment), **_FOR_PIP}
    before = _state_of_tree(Path(revision.top)), _state_of_environment()
    code = _run(build.command, folder, revision.environment(variables), log, seconds)
    after = _state_of_tree(Path(revision.top)), _state_of_environment()
    if code is None:
        raise BuildFailed(f"bandwidth_build did not end in {seconds:g} s at {revision}: {_said(log)}")
    if code != 0:
        raise BuildFailed(f"bandwidth_build failed at {revision} with exit status {code}: {_said(log)}")
    for where, old, new in zip((revision.top, "this Python environment"), before, after, strict=True):
        if changed := sorted(str(path) for path in {*old, *new} if old.get(path) != new.get(path)):
            more = f" and {len(changed) - _FILES_NAMED} more" if len(changed) > _FILES_NAMED else ""
            raise BuildFailed(
                f"bandwidth_build wrote into {where} at {revision}, not only into the current folder: "
                f"{', '.join(changed[:_FILES_NAMED])}{more}; use relative paths, `pip` and `python` without a path, "
                "and build your own tree anew"
            )


def _run(command: str, folder: Path, variables: Mapping[str, str], log: Path, seconds: float) -> int | None:
    with log.open("wb") as output:
        process = subprocess.Popen(
            python_command("pytest_bandwidth.evidence.commit_pairs.build_shell", command),
            cwd=folder,
            env=descendant_environment(variables),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return finish(process, seconds, _GRACE_SECONDS)
        except BaseException:
            end_group(process, _GRACE_SECONDS)
            raise


def _said(log: Path) -> str:
    """Return the last lines of the log that speak of an error, or its last one, and where all of it is."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LARGEST_TAIL_BYTES))
        text = file.read().decode(errors="replace")
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    errors = [line for line in lines if "error" in line.lower()][-_ERRORS_NAMED:]
    return f"it said {shown('; '.join(errors or lines[-1:]), _LONGEST_SAID)}; all of it is in {log}"


def _state_of_tree(top: Path) -> dict[Path, tuple[int, int]]:
    """Return when the files of code below a folder were written, and their sizes: not those of environments inside."""
    found = {}
    for folder, folders, names in os.walk(top):
        if "pyvenv.cfg" in names and Path(folder) != top:
            folders.clear()
            continue
        folders[:] = [name for name in folders if name not in (".git", "__pycache__")]
        for name in names:
            if os.path.splitext(name)[1].lower() in CODE_SUFFIXES:
                state = os.lstat(os.path.join(folder, name))
                found[Path(folder, name)] = state.st_mtime_ns, state.st_size
    return found


def _state_of_environment() -> dict[Path, tuple[int, int]]:
    """Return the same of what is installed here, by the entries of its folders."""
    found = {}
    for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        with os.scandir(place) as entries:
            for entry in entries:
                if entry.name != "__pycache__" and not (entry.is_dir() and not entry.name.endswith("-info")):
                    state = entry.stat(follow_symlinks=False)
                    found[Path(entry.path)] = state.st_mtime_ns, state.st_size
    return found
