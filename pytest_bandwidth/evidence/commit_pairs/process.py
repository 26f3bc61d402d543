"""Run tests in a fresh process on the code of one of two trees, and check that its code came from there.

Before that, one process of the other revision reports the code of all tests of a file, without timing them.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import sysconfig
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pytest_bandwidth.devices.shared_arrays import shared_memory
from pytest_bandwidth.domain.code.identity import LARGEST_LIST_BYTES, CodeIdentity, digest, identity_of_plain
from pytest_bandwidth.domain.code.ptx_normal_form import ptx_digest
from pytest_bandwidth.domain.code.stored_kernel import LARGEST_BYTES, cubin_of_text
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.measured.measurement import INPUTS, Measurement
from pytest_bandwidth.domain.text import listed
from pytest_bandwidth.evidence.commit_pairs import run_in_worktree as run_in_worktree
from pytest_bandwidth.evidence.commit_pairs.alternate import Alternate, drops, processor_of, take_turns
from pytest_bandwidth.evidence.commit_pairs.worktree import Revision
from pytest_bandwidth.evidence.git import CODE_SUFFIXES
from pytest_bandwidth.evidence.processes.child import (
    Child,
    ChildResult,
    FreshProcessFailed,
    Invocation,
)
from pytest_bandwidth.evidence.processes.requests import ChildRequest, ReportCode
from pytest_bandwidth.evidence.processes.start_and_end import this_python
from pytest_bandwidth.outcomes.outcome import Outcome, from_plain
from pytest_bandwidth.storage.own_folders import temporary_folder

# pytest's exit statuses (pytest.ExitCode).
_PASSED, _TEST_FAILED, _NOTHING_COLLECTED = 0, 1, 5
SHORT_PAIRS = 4
_OWN_OPTION = "--bandwidth-against"
_FILES_SHOWN = 3
ADDRESS_BITS = 63
HASH_SEED_VARIABLE = "PYTHONHASHSEED"
# After a kernel, OpenMP threads spin: libgomp's for 12 to 100 ms, LLVM's for 200. The other process waits until they
# sleep. These settings halve the time of a round. Threads still spin for 0.1 to 1 ms, so that they stay awake between
# the loops of one kernel.
SHORT_SPINS = {"GOMP_SPINCOUNT": "3000", "KMP_BLOCKTIME": "1"}


# The outcomes of one test, by label.
Rows = Mapping[str | None, Outcome]


class NothingThere(BandwidthError):
    """Raised where the other revision has no measurement for a comparison; the message holds the reason."""


class FailsThere(NothingThere):
    """Raised where the test fails at the other revision; the message holds pytest's reason."""


class ForeignImport(BandwidthError):
    """Raised where a process ran code of another tree, or where the origin of its code is unknown."""


@dataclass(frozen=True, slots=True)
class Worktrees:
    """Hold both trees of one test. target: the test's file. nodeid: the test's node id in this run.

    rounds_share: as in `Task`. candidate: the revision to measure instead of the tree that pytest was started in.
    findable: files of the environment's top-level modules, by name; None: those of this process's loaded modules.
    """

    invocation: Invocation
    revision: Revision
    device: str
    nodeid: str
    target: Path
    timeout_seconds: float
    rounds_share: float = 1.0
    candidate: Revision | None = None
    findable: Mapping[str, str] | None = None

    def head(self) -> list[dict[str, Any]]:
        """Measure the tree that pytest was started in, uncommitted changes included; or the candidate's, if any.

        Raises FreshProcessFailed, ForeignImport; for a candidate, as `base` does.
        """
        return self._of_head(self._measuring).measured()

    def base(self) -> list[dict[str, Any]]:
        """Measure the other revision's tree. Raises NothingThere, FreshProcessFailed, ForeignImport."""
        return self._of_base(self._measuring).measured()

    def codes_at_base(self, nodeids: Collection[str]) -> list[dict[str, Any]]:
        """Return rows with the code that the given tests run at the other revision. Raises as `base` does."""
        return self._of_base(ReportCode(self.device, nodeids=tuple(nodeids))).measured()

    def alternating(self, number: int, precision: float) -> MeasuredPair:
        """Measure new and old code alternately, round by round, in two processes. Raises as `head` and `base` do.

        number: how many pairs came before. The process that starts and samples first changes from pair to pair, so that
        an effect of the order is not a drop. The processor and the common addresses change too. precision: as in
        `Conductor`.
        """
        head_is_first, addresses = number % 2 == 0, addresses_of_pair()
        # If the first pairs do not decide, rounds scatter, and more of them cost little compared with the processes'
        # start: a GEMM of 90 ms had six in a pair. A precise measurement ends earlier.
        share = self.rounds_share if number < SHORT_PAIRS else min(1.0, 2 * self.rounds_share)
        with ExitStack() as stack:
            memory = stack.enter_context(shared_memory())
            request = Alternate(self.device, nodeids=(self.nodeid,), rounds_share=share, shared_memory=memory)
            sides = []
            for side in (self._of_head(request), self._of_base(request)):
                environment = dict(side.environment)
                # The hash seed is common too, so that sets have the same order, unless the user has set it.
                if addresses and not environment.get(HASH_SEED_VARIABLE, "").isdigit():
                    environment[HASH_SEED_VARIABLE] = str(sum(addresses.values()) % 2**32)
                if not environment.keys() & {*SHORT_SPINS, "OMP_WAIT_POLICY"}:  # the user's choice has priority
                    environment |= SHORT_SPINS
                sides.append(replace(side, plan={**side.plan, **addresses}, environment=environment))
            in_order = sides if head_is_first else sides[::-1]
            (one, file), (other, other_file) = (stack.enter_context(side.started()) for side in in_order)
            taken = take_turns((one, other), processor_of(number), 2 * self.timeout_seconds, memory, precision)
            first = in_order[0].rows(taken.ended[0], file)
            second = in_order[1].rows(taken.ended[1], other_file)
            # Alike only if both processes had the requested addresses.
            alike = taken.shared if all(loaded_by(each)["laid_out"] for each in (file, other_file)) else ()
        found = drops(taken.rounds)
        if head_is_first:
            return MeasuredPair(by_label(first), by_label(second), found, alike)
        return MeasuredPair(by_label(second), by_label(first), {label: -drop for label, drop in found.items()}, alike)

    @property
    def _measuring(self) -> ChildRequest:
        return ChildRequest(self.device, nodeids=(self.nodeid,), rounds_share=self.rounds_share)

    def _of_head(self, request: ChildRequest) -> Process:
        """Return the process for the new code: of the candidate's tree, or else of the tree where pytest started."""
        if self.candidate is not None:
            return self._at(self.candidate, (self.revision,), request)
        plan = _plan((self.revision.tree,), self.revision.top, {}, as_module=self.invocation.as_module)
        request, environment = replace(request, target=str(self.target)), dict(os.environ)
        return Process(plan, self.invocation, request, environment, self.timeout_seconds, self.revision, False)

    def _of_base(self, request: ChildRequest) -> Process:
        """Return the process for the other revision's tree. Raises NothingThere, ForeignImport."""
        return self._at(self.revision, () if self.candidate is None else (self.candidate,), request)

    def _at(self, revision: Revision, others: Sequence[Revision], request: ChildRequest) -> Process:
        """Return a process for a revision's tree, which must import nothing from `others` or the user's tree."""
        target = revision.counterpart(self.target)
        if target is None:
            raise ForeignImport(
                f"{self.target} lies outside the repository {revision.top}: expected a test that git has at both "
                "revisions"
            )
        if not Path(revision.tree).is_dir():  # a worker on another machine
            raise ForeignImport(
                f"found no worktree of {revision} on this machine, expected workers where pytest was started: "
                "with --bandwidth-against, start pytest on each machine"
            )
        if not target.exists():
            raise NothingThere(f"{revision} has no {self.target.name}")
        modules = run_in_worktree.loaded_modules() if self.findable is None else self.findable
        names = names_of_finders(revision, modules)
        trees = (revision.top, *(other.tree for other in others))
        plan = _plan(trees, revision.tree, names, as_module=self.invocation.as_module)
        invocation, request = invocation_at(self.invocation, revision), replace(request, target=str(target))
        return Process(
            plan, invocation, request, revision.environment(os.environ), self.timeout_seconds, revision, True
        )


@dataclass(frozen=True, slots=True)
class MeasuredPair:
    """Hold the outcomes of the two processes of a pair, by label.

    drops: ln(the head's seconds ÷ the base's), if they sampled alternately. alike: the labels for which both processes
    had the same addresses, and all arrays in the same memory.
    """

    head: Rows
    base: Rows
    drops: Mapping[str | None, float] = field(default_factory=dict)
    alike: Collection[str | None] = ()


def by_label(rows: Iterable[Mapping[str, Any]]) -> Rows:
    """Return outcomes by label, from plain rows of one test."""
    return {outcome.label: outcome for outcome in map(from_plain, rows)}


@dataclass(frozen=True, slots=True)
class Process:
    """Hold how to start a process of one of two trees. at_base: whether the tree is the other revision's."""

    plan: Mapping[str, Any]
    invocation: Invocation
    request: ChildRequest
    environment: Mapping[str, str]
    timeout_seconds: float
    revision: Revision
    at_base: bool

    def measured(self) -> list[dict[str, Any]]:
        """Run the process; return its rows. Raises FreshProcessFailed, ForeignImport, and NothingThere at the base."""
        with self.started() as (child, loaded_file):
            return self.rows(child.finish(self.timeout_seconds), loaded_file)

    @contextmanager
    def started(self) -> Iterator[tuple[Child, Path]]:
        """Start the process, which this context always ends; yield it, and the file for what it loads."""
        with temporary_folder() as own:
            plan_file, loaded_file = Path(own, "plan.json"), Path(own, "loaded_files.json")
            plan_file.write_text(json.dumps({**self.plan, "loaded_files": str(loaded_file)}), encoding="utf-8")
            arguments = [*without_own_option(self.invocation.args), *self.invocation.extra_args]
            python = self.revision.python if self.at_base else None
            command = [*this_python(python), run_in_worktree.__file__, str(plan_file), *arguments]
            with Child(command, self.invocation.folder, self.request, self.environment) as child:
                yield child, loaded_file

    def rows(self, result: ChildResult, loaded_file: Path) -> list[dict[str, Any]]:
        """Return the rows of the process, which has ended. Raises as `measured` does."""
        if result.code is not None and loaded_file.exists():
            check_loaded_files(loaded_by(loaded_file), self.plan, self.revision)
        elif result.rows:
            raise ForeignImport(f"a new process measured, but sent no list of loaded files: it {result}")
        if result.rows:
            return result.rows
        revision = self.revision
        if not self.at_base:
            raise FreshProcessFailed(f"a new process {result}")
        if result.code == _NOTHING_COLLECTED:
            raise NothingThere(f"{revision} has no such test")
        if result.code == _PASSED:
            raise NothingThere(f"the test skips or measures nothing at {revision}")
        if result.code == _TEST_FAILED:
            # The last line of the output about the failure: of pytest's short summary, if it has one.
            lines = [line for line in result.tail if line.startswith(("E ", "FAILED", "ERROR"))]
            last = (lines or list(result.tail) or ["no output"])[-1][:300]
            raise FailsThere(f"the test fails at {revision}: {last}")
        raise FreshProcessFailed(f"a new process at {revision} {result}")


def loaded_by(file: Path) -> dict[str, Any]:
    """Return the record that an ended process wrote about its modules and files."""
    loaded: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return loaded


def addresses_of_pair() -> dict[str, int]:
    """Draw the number that fixes the addresses of both processes of a pair, as an item of their plans."""
    return {"addresses": secrets.randbits(ADDRESS_BITS)}


def check_loaded_files(loaded: Mapping[str, Any], plan: Mapping[str, Any], revision: Revision) -> None:
    """Raise ForeignImport if a process used code of the other tree, or an installed copy instead of its own."""
    modules: dict[str, str] = loaded["modules"]
    used = {file for file in (*modules.values(), *loaded["files"]) if Path(file).suffix in CODE_SUFFIXES}
    for other in plan["others"]:
        strays = sorted(file for file in used if belongs(file, other, plan["environment"]))
        if strays:
            raise ForeignImport(
                f"a process for {plan['tree']} ran code of {other}: {listed(strays, _FILES_SHOWN)}; its figures do not "
                "count. Import code by relative paths or by an editable install, so that the process finds it at "
                f"{revision}"
            )
    tree = plan["tree"]
    roots = [tree, os.path.join(tree, "src"), *(one for one in loaded["path"] if run_in_worktree.inside(one, tree))]
    copies = []
    for name, file in modules.items():
        if run_in_worktree.inside(file, tree) or name.partition(".")[0] in sys.stdlib_module_names:
            continue
        # The module came from elsewhere; the tree may have one of that name.
        relative = name.replace(".", os.sep)
        places = (os.path.join(root, relative + end) for root in roots for end in (".py", f"{os.sep}__init__.py"))
        if any(os.path.isfile(place) for place in places):
            copies.append(f"{name} ({file})")
    if copies:
        raise ForeignImport(
            f"{listed(sorted(copies), _FILES_SHOWN)} is an installed copy, and {revision} has its "
            "own: both sides would measure the copy. Install it editable (pip install -e), or not at all"
        )


def modules_findable(names: Iterable[str]) -> dict[str, str]:
    """Return the files of the named top-level modules, as far as this environment has them, without importing them."""
    found = {}
    for name in names:
        with suppress(ImportError, ValueError, AttributeError):  # raised by finders for names that are no module
            spec = find_spec(name)
            if spec is not None and spec.origin is not None:
                found[name] = spec.origin
    return found


def names_of_finders(revision: Revision, modules: Mapping[str, str]) -> dict[str, str]:
    """Find top-level modules that come from the repository although it is not on sys.path.

    Editable installs with their own finder cause this. modules: files by name. Returns, by name, the folder that holds
    the module at the revision.
    """
    found, environment = {}, environment_in(revision.top)
    searched = {os.path.realpath(entry or os.getcwd()) for entry in sys.path}
    for name, file in modules.items():
        path = Path(os.path.realpath(file))
        if "." in name or not belongs(str(path), revision.top, environment):
            continue
        folder = path.parent.parent if path.stem == "__init__" else path.parent
        if str(folder) not in searched and (at := revision.counterpart(folder)) is not None:
            found[name] = str(at)
    return found


def environment_in(top: str) -> list[str]:
    """Return the folders inside a tree that belong to the Python environment, not to the repository."""
    prefixes = {os.path.realpath(prefix) for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix)}
    if os.path.realpath(top) in prefixes:  # the environment is the checkout itself
        prefixes = set()
    libraries = {os.path.realpath(sysconfig.get_path(name)) for name in ("purelib", "platlib", "stdlib", "platstdlib")}
    return sorted(path for path in prefixes | libraries if run_in_worktree.inside(path, os.path.realpath(top)))


def invocation_at(invocation: Invocation, revision: Revision) -> Invocation:
    """Move a command line to the revision's tree: paths into the repository become paths into that tree."""
    here, folder, args = invocation.folder, revision.counterpart(invocation.folder), []
    for arg in invocation.args:
        option, equals, value = arg.partition("=") if arg.startswith("-") else ("", "", arg)
        path, colons, rest = value.partition("::")
        is_path = os.path.isabs(path) or (folder is None and os.path.exists(here / path))
        at = revision.counterpart(here / path) if path and is_path else None
        args.append(arg if at is None else f"{option}{equals}{at}{colons}{rest}")
    while folder is not None and not folder.is_dir():  # a folder that the revision does not have yet
        folder = folder.parent
    return replace(invocation, args=tuple(args), folder=folder or here)


def without_own_option(args: Sequence[str]) -> list[str]:
    """Return the arguments without --bandwidth-against, because child processes compare nothing."""
    kept: list[str] = []
    is_value = False
    for arg in args:
        name, given, _ = arg.partition("=")
        if name == _OWN_OPTION:
            is_value = not given
        elif is_value:
            is_value = False
        else:
            kept.append(arg)
    return kept


def _plan(others: Sequence[str], tree: str, names: Mapping[str, str], *, as_module: bool) -> dict[str, Any]:
    return {
        "others": list(others),
        "tree": tree,
        "environment": [folder for other in others for folder in environment_in(other)],
        "names": dict(names),
        "current_folder_first": as_module,
    }


def belongs(file: str, tree: str, environment: Iterable[str]) -> bool:
    """Return whether a file is in the tree, and not in a Python environment inside it."""
    return run_in_worktree.inside(file, tree) and not any(
        run_in_worktree.inside(file, folder) for folder in environment
    )


NO_ROWS: Rows = MappingProxyType({})


@dataclass(slots=True)
class RevisionCode:
    """Cache the other revision's reports about its tests' code, one for each file, and the code itself.

    PTX and lists of files are kept by their hash, machine code by the hashes of the kernel's PTX and machine code.
    """

    _files: dict[Path, Mapping[str, Rows]] = field(default_factory=dict)
    _ptx: dict[str, str] = field(default_factory=dict)
    _cubins: dict[tuple[str | None, str | None], bytes] = field(default_factory=dict)
    _lists: dict[str, str] = field(default_factory=dict)

    def of(
        self,
        worktrees: Worktrees,
        tests: Collection[str],
        device_held: Callable[[], AbstractContextManager[None]],
        notify: Callable[[str], None],
    ) -> Rows:
        """Return the revision's rows about the test. tests: node ids of the file's tests that this run measures.

        No rows if the process failed: the pairs, or the counting, find the reason.
        """
        file = worktrees.target
        if file not in self._files:
            notify(f"what code {file.name} runs at {worktrees.revision}")
            try:
                with device_held():
                    rows = worktrees.codes_at_base(tests)
                reported: dict[str, dict[str | None, Outcome]] = {}
                for row in map(from_plain, rows):
                    reported.setdefault(_test_of(row.nodeid), {})[row.label] = row
                self._files[file] = reported
                self._keep(rows)
            except BandwidthError:
                self._files[file] = {}
        return self.known(worktrees)

    def known(self, worktrees: Worktrees) -> Rows:
        """Return the revision's rows about the test, as far as they are cached."""
        return self._files.get(worktrees.target, {}).get(_test_of(worktrees.nodeid), NO_ROWS)

    def _keep(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Keep the code that rows contain, unless it is too large."""
        texts = {name: {text for row in rows if isinstance(text := row.get(name), str)} for name in ("ptx", "files")}
        self._ptx |= {ptx_digest(text): text for text in texts["ptx"] if len(text.encode()) <= LARGEST_BYTES}
        self._lists |= {digest(text): text for text in texts["files"] if len(text.encode()) <= LARGEST_LIST_BYTES}
        for row in rows:
            code, cubin = row.get("code_identity"), cubin_of_text(row.get("cubin"))
            if cubin is not None and isinstance(code, Mapping):
                self._cubins[code.get("ptx"), code.get("sass")] = cubin

    def files(self, name: str) -> str:
        """Return the list of files of that hash. Raises BandwidthError if the revision's rows did not contain it."""
        found = self._lists.get(name)
        if found is None:
            raise BandwidthError(f"found no list {name} in the answer from the revision, expected one of its files")
        return found

    def ptx(self, name: str) -> str:
        """Return the kernel's PTX of that hash. Raises BandwidthError if the revision's rows did not contain it."""
        found = self._ptx.get(name)
        if found is None:
            raise BandwidthError(
                f"found no PTX {name} in the answer from the revision, expected at most {LARGEST_BYTES // 2**20} MiB: "
                "an older pytest-bandwidth sends none"
            )
        return found

    def cubin(self, code: Mapping[str, str]) -> bytes | None:
        """Return the machine code for an entry's `code`; None if the revision's rows did not contain it."""
        return self._cubins.get((code.get("ptx"), code.get("sass")))


def _test_of(nodeid: str) -> str:
    """Return a node id without its file, whose path may start at different folders in the two trees."""
    return nodeid.partition("::")[2]


def runs_same_code(measurement: Measurement, row: Outcome | None) -> bool:
    """Return whether the other revision certainly runs the same code and launch, for the same declared bytes.

    On a counting device the input data must be the same too: then the counts are the same.
    """
    declared = measurement.traffic.bytes_read, measurement.traffic.bytes_written
    counted = measurement.device.counts_only
    return row is not None and _is_same(measurement.code, declared, measurement.detail, row, counted=counted)


def are_same_code(one: Outcome, other: Outcome, *, counted: bool) -> bool:
    """Return whether two revisions certainly run the same code. counted: whether the device counts."""
    declared = one.bytes_read, one.bytes_written
    return _is_same(identity_of_plain(one.code_identity), declared, one.detail, other, counted=counted)


def _is_same(
    code: CodeIdentity, declared: tuple[int, int], detail: Mapping[str, Any], row: Outcome, *, counted: bool
) -> bool:
    then = identity_of_plain(row.code_identity)
    # A compiler may make other machine code from the same PTX. Its resources differ, and they are counted too.
    if not code.is_same(then, by="ptx" if counted else "sass") or code.sass != then.sass:
        return False
    if declared != (row.bytes_read, row.bytes_written):
        return False
    inputs = detail.get(INPUTS)
    return not counted or (inputs is not None and inputs == row.detail.get(INPUTS))
