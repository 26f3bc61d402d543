"""Check a revision out and build it once: worktree, environment and log are kept for later runs.

CACHE/builds/KEY                 KEY: a hash of everything that the build depends on
CACHE/builds/KEY/owner.lock      shared while processes use the build; exclusive for making or removing it
CACHE/builds/KEY/tree            the worktree, with the build's files
CACHE/builds/KEY/environment     the packages that the build installed
CACHE/builds/KEY/build.log       the output of the command
CACHE/builds/KEY/built.json      written last: a hash of the tree after the build
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shlex
import shutil
import site
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import listed, shown
from pytest_bandwidth.evidence.commit_pairs.process import belongs, environment_in
from pytest_bandwidth.evidence.commit_pairs.run_in_worktree import inside, loaded_modules
from pytest_bandwidth.evidence.commit_pairs.worktree import (
    TREE,
    CheckedOut,
    Revision,
    add_tree,
    commit_of,
    remove_tree,
    top_of,
)
from pytest_bandwidth.evidence.git import CODE_SUFFIXES, git, repository_of
from pytest_bandwidth.evidence.processes.start_and_end import descendant_environment, finish, own_group, python_command
from pytest_bandwidth.storage.atomic import write_whole
from pytest_bandwidth.storage.own_folders import LOCK, cache_folder, what_is_wrong

# Extensions with many kernels take up to an hour.
BUILD_SECONDS = 3600.0
_GRACE_SECONDS = 10.0
_LARGEST_TAIL_BYTES = 65_536
_FILES_NAMED, _ERRORS_NAMED, _LONGEST_SAID = 3, 3, 400
# Variables that make pip install elsewhere, and settings against its questions and its check for a newer pip.
_LEFT_OUT = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON", "PYTHONHOME")
_FOR_PIP = {"PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_USER": "0"}
# Sorts last among .pth files, so that the build's packages are found before those of this environment.
_PATH_FILE = "zz_pytest_bandwidth.pth"
LOG, BUILT, ENVIRONMENT = "build.log", "built.json", "environment"
MOST_KEPT, MOST_KEPT_BYTES = 8, 10 * 2**30
LARGEST_BUILT_BYTES = 4096
_POLL_SECONDS = 0.2
# Variables that compilers read.
_COMPILERS_READ = (
    *("CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CMAKE_ARGS", "CUDA_HOME", "CUDA_PATH", "ROCM_HOME"),
    *("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "TORCH_CUDA_ARCH_LIST", "CUDAARCHS", "PYTORCH_ROCM_ARCH"),
)
_EXTENSIONS = (".so", ".pyd", ".dylib")


class BuildFailed(UsageError):
    """Raised where a revision cannot be built; the message ends with the command's last output."""


@dataclass(frozen=True, slots=True)
class Build:
    """Hold how revisions are built. command: for the shell. folder: its current folder, in the user's own tree."""

    command: str
    folder: Path


def make_environment(folder: Path) -> None:
    """Make a virtual environment on top of this one: it has this one's packages, and takes new ones.

    pip itself is this environment's, run by the new one's interpreter, since installing another pip takes seconds.
    """
    venv.EnvBuilder(symlinks=True).create(folder)
    places = [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    lines = [f"import site; site.addsitedir({place!r})" for place in places]
    # Some packages look for libraries with site.getsitepackages(), as CUDA's own do for NVRTC.
    lines += [f"import site; site.PREFIXES.append({prefix!r})" for prefix in site.PREFIXES]
    libraries = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (libraries / _PATH_FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name in ("pip", "pip3"):
        script = folder / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(str(folder / "bin" / "python"))} -m pip "$@"\n')
        script.chmod(0o755)


def run_build(build: Build, revision: Revision, environment: Path, log: Path, seconds: float = BUILD_SECONDS) -> None:
    """Build the revision in its tree. Raises BuildFailed if that fails, or changes files outside tree and environment.

    environment: made by `make_environment`. log: the file for the command's output.
    """
    counterpart = revision.counterpart(build.folder)
    folder = counterpart if counterpart is not None and counterpart.is_dir() else Path(revision.tree)
    variables = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
    variables["PATH"] = f"{environment / 'bin'}{os.pathsep}{variables.get('PATH', os.defpath)}"
    variables |= {"VIRTUAL_ENV": str(environment), **_FOR_PIP}
    before = _states_outside(revision.top)
    with (
        log.open("wb") as output,
        own_group(
            python_command(__name__, build.command),
            _GRACE_SECONDS,
            cwd=folder,
            env=descendant_environment(revision.environment(variables)),
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        code = finish(process, seconds, _GRACE_SECONDS)
    after = _states_outside(revision.top)
    if code is None:
        raise BuildFailed(f"bandwidth_build did not end in {seconds:g} s at {revision}: {_last_errors(log)}")
    if code != 0:
        raise BuildFailed(f"bandwidth_build failed at {revision} with exit status {code}: {_last_errors(log)}")
    for where, old in before.items():
        new = after[where]
        if changed := sorted(str(path) for path in {*old, *new} if old.get(path) != new.get(path)):
            raise BuildFailed(
                f"bandwidth_build wrote into {where} at {revision}, not only into the current folder: "
                f"{listed(changed, _FILES_NAMED)}; use relative paths, `pip` and `python` without a path, "
                "and build your own tree again"
            )


def _last_errors(log: Path) -> str:
    """Return the last lines of the log that contain "error", or else its last line, and the path of the log."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LARGEST_TAIL_BYTES))
        text = file.read().decode(errors="replace")
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    errors = [line for line in lines if "error" in line.lower()][-_ERRORS_NAMED:]
    return f"it said {shown('; '.join(errors or lines[-1:]), _LONGEST_SAID)}; all of it is in {log}"


def _states_outside(top: str) -> dict[str, dict[Path, tuple[int, int]]]:
    """Return the modification times and sizes of files that a build must not change, by their place.

    These are the files of code below a tree, without virtual environments in it, and the entries of this environment's
    package folders.
    """
    in_tree: dict[Path, tuple[int, int]] = {}
    for folder, folders, names in os.walk(top):
        if "pyvenv.cfg" in names and folder != top:
            folders.clear()
            continue
        folders[:] = [name for name in folders if name not in (".git", "__pycache__")]
        for name in names:
            if os.path.splitext(name)[1].lower() in CODE_SUFFIXES:
                state = os.lstat(os.path.join(folder, name))
                in_tree[Path(folder, name)] = state.st_mtime_ns, state.st_size
    installed: dict[Path, tuple[int, int]] = {}
    for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        with os.scandir(place) as entries:
            for entry in entries:
                if entry.name != "__pycache__" and not (entry.is_dir() and not entry.name.endswith("-info")):
                    state = entry.stat(follow_symlinks=False)
                    installed[Path(entry.path)] = state.st_mtime_ns, state.st_size
    return {top: in_tree, "this Python environment": installed}


def main(command: str) -> int:
    """Run a build command with the shell, in a process that ends with its parent; return the exit status."""
    return subprocess.call(command, shell=True)


@contextmanager
def check_out(root: Path, name: str, build: Build | None, notify: Callable[[str], None]) -> Iterator[Revision]:
    """Check a revision out for this context, and build it if there is a build. Raises UsageError, BuildFailed.

    root, name: as in `CheckedOut`. notify: takes a line about the current step.
    """
    held = CheckedOut(root, name) if build is None else Built(root, name, build, notify)
    try:
        yield held.revision
    finally:
        held.remove()


class Built:
    """Hold a revision that is built, until `remove`; other processes may use the same build."""

    def __init__(self, root: Path, name: str, build: Build, notify: Callable[[str], None]) -> None:
        """Find the build, or make it while other processes wait. Raises UsageError, BuildFailed."""
        self._top = top_of(root, "--bandwidth-against")
        commit = commit_of(self._top, name, "--bandwidth-against")
        cache = cache_folder().resolve()
        if cache.is_relative_to(self._top):
            raise UsageError(
                f"{cache} lies in {self._top}: set XDG_CACHE_HOME to a folder outside, where revisions are built"
            )
        cache.parent.mkdir(parents=True, exist_ok=True)
        for folder in (cache, cache / "builds"):
            if (wrong := what_is_wrong(folder)) is not None:
                raise UsageError(f"{folder}: {wrong}, expected a folder that is this user's alone: set XDG_CACHE_HOME")
        self._folder = cache / "builds" / _key(self._top, commit, build)
        self._build, self._notify = build, notify
        python = str(self._folder / ENVIRONMENT / "bin" / "python")
        self.revision = Revision(name, commit, str(self._top), str(self._folder / TREE), python)
        self._lock: int | None = None
        try:
            self._take()
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Release the build; its files are kept. Safe to repeat."""
        descriptor, self._lock = self._lock, None
        if descriptor is not None:
            os.close(descriptor)

    def _take(self) -> None:
        deadline = time.monotonic() + BUILD_SECONDS
        while True:
            if self._is_locked(fcntl.LOCK_SH) and self._is_built():
                os.utime(self._folder)
                return
            self.remove()
            if self._is_locked(fcntl.LOCK_EX):
                if not self._is_built():
                    self._make()
                # The next pass takes a shared lock: other processes may lock the build in between, and use it as well.
                self.remove()
                continue
            if time.monotonic() > deadline:
                raise BuildFailed(f"another process has locked {self._folder} for {BUILD_SECONDS:g} s: end it or wait")
            time.sleep(_POLL_SECONDS)  # flock has no time-out, and the build that holds it may hang

    def _is_locked(self, kind: int) -> bool:
        """Lock the folder, after making it if it is missing; return whether that was possible."""
        self.remove()
        if (wrong := what_is_wrong(self._folder)) is not None:
            raise UsageError(f"{self._folder}: {wrong}, expected a folder that is this user's alone, for builds")
        self._lock = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._lock, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        # No links where another process has just removed the folder.
        return os.fstat(self._lock).st_nlink > 0

    def _is_built(self) -> bool:
        """Return whether the tree is there, with the commit's files as they were right after the build."""
        tree = _record_in(self._folder / BUILT).get("tree")
        try:
            return tree is not None and bool(tree == _state(Path(self.revision.tree), self.revision.commit))
        except UsageError:
            return False

    def _make(self) -> None:
        folder, revision = self._folder, self.revision
        _clear(folder)
        remove_old_builds(folder.parent, but=folder)
        self._notify(f"builds {revision}: {folder / LOG}")
        try:
            add_tree(self._top, folder, revision.commit)
            make_environment(folder / ENVIRONMENT)
            run_build(self._build, revision, folder / ENVIRONMENT, folder / LOG)
        except BaseException:
            _clear(folder, but=(LOG,))
            raise
        places = (Path(top, name) for top, _, names in os.walk(folder) for name in names)
        size = sum(place.lstat().st_size for place in places)
        record = {"tree": _state(folder / TREE, revision.commit), "bytes": size}
        write_whole(folder / BUILT, json.dumps(record).encode())


def remove_old_builds(builds: Path, but: Path) -> None:
    """Remove all but the last used builds, within the limits of number and size; keep those in use."""
    folders = [path for path in builds.iterdir() if path != but and path.is_dir() and not path.is_symlink()]
    kept, kept_bytes = 1, 0
    for folder in sorted(folders, key=lambda path: path.stat().st_mtime, reverse=True):
        size = _record_in(folder / BUILT).get("bytes")
        # A build that was never finished has no size in its record.
        kept, kept_bytes = kept + 1, kept_bytes + (size if isinstance(size, int) else 0)
        if kept <= MOST_KEPT and kept_bytes <= MOST_KEPT_BYTES:
            continue
        with suppress(OSError), (folder / LOCK).open("r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _clear(folder)
            (folder / LOCK).unlink()
            folder.rmdir()


def _record_in(file: Path) -> dict[str, Any]:
    """Return the object in a JSON file; an empty one if the file is missing or holds no object."""
    try:
        with file.open(encoding="utf-8") as opened:
            record = json.loads(opened.read(LARGEST_BUILT_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _clear(folder: Path, but: tuple[str, ...] = ()) -> None:
    """Remove a build and git's record of its tree, but not its lock, which this process holds exclusively."""
    (folder / BUILT).unlink(missing_ok=True)
    remove_tree(folder / TREE, folder / TREE)
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name not in (LOCK, *but):
            path.unlink()


def _key(top: Path, commit: str, build: Build) -> str:
    """Return a hash of everything that a build depends on: commit, command, interpreter, packages, variables."""
    packages = (one for one in metadata.distributions() if folder_of_editable(one) is None)
    installed = sorted(f"{one.name} {one.version}" for one in packages)
    variables = {name: os.environ[name] for name in _COMPILERS_READ if name in os.environ}
    parts = [
        *(os.fsdecode(repository_of(top)), commit, build.command, os.path.relpath(build.folder, top)),
        *(sys.prefix, sys.version, installed, variables),
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def folder_of_editable(distribution: metadata.Distribution) -> str | None:
    """Return the source folder of an editable install; None for any other distribution."""
    try:
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
        return unquote(urlsplit(origin["url"]).path) if origin["dir_info"]["editable"] else None
    except (ValueError, LookupError, TypeError):
        return None


def _state(tree: Path, commit: str) -> str:
    """Return a hash of a tree's current commit and of the changes to its files since `commit`."""
    changes = git(tree, "diff", "--no-ext-diff", "--no-textconv", "--binary", "--no-color", commit)
    head = git(tree, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    return hashlib.sha256(f"{head}{changes}".encode("utf-8", "surrogateescape")).hexdigest()


def check_extensions(revision: Revision) -> None:
    """Raise UsageError if a loaded extension is missing at a revision that was checked out without a build."""
    if revision.python is not None:
        return
    missing = []
    for file in loaded_modules().values():
        if not file.endswith(_EXTENSIONS):
            continue
        if belongs(file, revision.top, environment_in(revision.top)):
            at = revision.counterpart(Path(file))
            if at is None or not at.exists():
                missing.append(file)
        elif file in _of_editable_installs(revision.top):
            missing.append(file)
    if missing:
        raise UsageError(
            f"{listed(sorted(missing), 1)}: a loaded extension is not in git at {revision}: say in the ini file how to "
            "build a revision, such as bandwidth_build = pip install -e . --no-build-isolation"
        )


@cache
def _of_editable_installs(top: str) -> frozenset[str]:
    """Return extensions that editable installs of a tree's folders keep elsewhere, as scikit-build's and meson's do."""
    found: set[str] = set()
    for one in metadata.distributions():
        folder = folder_of_editable(one)
        if folder is not None and inside(os.path.realpath(folder), top):
            files = (file for file in one.files or () if str(file).endswith(_EXTENSIONS))
            found |= {os.path.realpath(str(one.locate_file(file))) for file in files}
    return frozenset(found)
