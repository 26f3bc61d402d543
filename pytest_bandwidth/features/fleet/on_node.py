"""Run pytest as a child process on a card's node, end it in time, and return its files.

Ray sends this module by value, with what it imports from `handed_over`, since the node may lack the plugin. All other
imports are of the standard library.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

# Ray sends this value along; the node imports nothing for it.
from pytest_bandwidth.evidence.processes.start_and_end import WITHOUT_CURRENT_FOLDER
from pytest_bandwidth.options.handed_over import ANCESTOR_VARIABLE, REQUEST_VARIABLE, hand_over

# A document of 10,000 tests; larger files are not returned.
LARGEST_RETURNED_BYTES = 64 * 2**20
TAIL_LINES, TAIL_BYTES = 12, 16 * 2**10
# After an interrupt pytest has so long to end its own children; then it is killed with its process group.
ENDING_SECONDS = 10.0
# Importing the plugin, to find out whether it is there.
LOOKING_SECONDS = 60.0
# The time for which Ray's own processes are watched before pytest starts.
WATCHING_SECONDS = 0.5
# The variables of a CI job's step, for which only the caller writes.
NOT_INHERITED = ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY")
# Ray assigns GPUs to a process by these.
VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


class Runner:
    """Run one card's pytest. Ray makes an actor of it, which holds the card until it is killed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._changing = threading.Lock()
        self._stopped = False

    def ready(self) -> str:
        """Return the numbers of the actor's GPUs, with commas, "" without GPUs. The answer comes with the card."""
        return next((os.environ[name] for name in VISIBLE if os.environ.get(name)), "")

    def run(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """Run the task (`cards.Task`, by field) and return the outcome (`cards.Returned`, by field).

        status: pytest's exit status; None where it was ended after the time-out. document, evidence: what it wrote;
        None where it wrote nothing, or more than allowed: document_bytes is the size. plugin: where nothing was
        written, the plugin's version there; "" without the plugin.
        ray_processors: processors that Ray's own processes used before it began. Idle, they use nothing; what they use
        while a test measures counts as others' work.
        """
        used_by_ray = ray_processors()
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="pytest-bandwidth-fleet-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            log = folder / "output"
            status = self._run(task, folder, log)
            with log.open("rb") as stream:
                stream.seek(max(0, log.stat().st_size - TAIL_BYTES))
                tail = stream.read().decode("utf-8", "replace").strip().splitlines()[-TAIL_LINES:]
            file = folder / "document.json"
            document = _read(file)
            found: dict[str, Any] = {
                "status": status,
                "seconds": time.monotonic() - begun,
                "tail": tail,
                "document": document,
                "document_bytes": file.stat().st_size if file.exists() else 0,
                "evidence": _read(folder / "evidence.json"),
                "python": task["python"] or sys.executable,
                "ray_processors": used_by_ray,
            }
        if document is None and status is not None:
            found["plugin"] = _plugin_version(task["python"] or sys.executable)
        return found

    def stop(self) -> None:
        """End the child with all its own children; a run that waits for it then returns."""
        with self._changing:
            self._stopped = True
            process = self._process
        if process is not None:
            _end(process)

    def _run(self, task: Mapping[str, Any], folder: Path, log: Path) -> int | None:
        baseline = _lay_out(task, folder)
        places = {
            "document": str(folder / "document.json"),
            "evidence": str(folder / "evidence.json"),
            "baseline": None if baseline is None else str(baseline),
        }
        environment = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
        # The plugin in the child ends with this process, and its process group with it.
        environment[ANCESTOR_VARIABLE] = str(os.getpid())
        environment[REQUEST_VARIABLE] = str(folder / "places.json")
        hand_over(folder / "places.json", {"fleet": places})
        # With -m the current folder stays importable, as in a shell: it is the checkout, and its tests import
        # from it. No options of Python's: the node's interpreter was started by Ray, with options of Ray's own.
        command = [task["python"] or sys.executable, "-m", "pytest", *task["arguments"]]
        with log.open("wb") as output, self._changing:
            if self._stopped:
                return None
            process = self._process = subprocess.Popen(
                command,
                cwd=task["folder"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            return process.wait(task["timeout_seconds"])
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(process)


def ray_processors() -> float | None:
    """Return how many processors Ray's own processes use on this machine; None where it is unknown."""
    before = _ray_seconds(Path("/proc"))
    if before is None:
        return None
    time.sleep(WATCHING_SECONDS)  # counters grow from boot: a rate needs two readings
    after = _ray_seconds(Path("/proc")) or {}
    return sum(used - before.get(pid, used) for pid, used in after.items()) / WATCHING_SECONDS


def _ray_seconds(proc: Path) -> dict[str, float] | None:
    """Return the processor seconds that each of Ray's processes has used, by process id; None without /proc."""
    try:
        names = [entry for entry in os.listdir(proc) if entry.isdigit()]
        ticks = os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None
    used = {}
    for name in names:
        with suppress(OSError, ValueError, IndexError):  # it has ended
            if _is_rays((proc / name / "cmdline").read_bytes()):
                # man 5 proc_pid_stat: the name may hold any character, and ends at the last parenthesis.
                fields = (proc / name / "stat").read_text(errors="replace").rpartition(") ")[2].split()
                used[name] = (int(fields[11]) + int(fields[12])) / ticks
    return used


def _is_rays(command: bytes) -> bool:
    """Return whether a command line is one of Ray's daemons: its servers, agents and monitors, not what it runs."""
    first, *others = command.split(b"\0")
    if os.path.basename(first) in (b"raylet", b"gcs_server"):
        return True
    return first.startswith(b"ray-") or any(
        b"/ray/dashboard/" in one or b"/ray/_private/" in one or b"/ray/autoscaler/" in one for one in others[:6]
    )


def _lay_out(task: Mapping[str, Any], folder: Path) -> Path | None:
    """Write the caller's baseline; return its path, None without a baseline."""
    if task["baseline"] is None:
        return None
    root = folder / "baseline"
    path = root / str(task["baseline"])
    (path if task["is_folder"] else path.parent).mkdir(parents=True)
    for name, data in task["files"].items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return path


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group: by an interrupt, on which pytest prints where it was; then by a kill."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(ENDING_SECONDS)
    # Processes that the tests started may still run.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as stream:
            data = stream.read(LARGEST_RETURNED_BYTES + 1)
    except OSError:
        return None
    return data if len(data) <= LARGEST_RETURNED_BYTES else None


def _plugin_version(python: str) -> str:
    """Return the version of the plugin that an interpreter has installed; "" where it has none."""
    looked = [
        python,
        "-c",
        f"{WITHOUT_CURRENT_FOLDER}import pytest_bandwidth.plugin, pytest_bandwidth as p; print(p.__version__)",
    ]
    try:
        done = subprocess.run(looked, capture_output=True, text=True, check=False, timeout=LOOKING_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
