"""Ask compilers in processes of their own, which end at Ctrl-C, past their time and with this process."""

from __future__ import annotations

import atexit
import json
import math
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from pytest_bandwidth.domain.errors import DeviceUnavailable, KernelError

INSTALL_HINT = "install it with: pip install 'pytest-bandwidth[traffic]'"
_SERVER = Path(__file__).with_name("server.py")
# With -I a child looks for modules in its installation first, and only then where this process does: a json.py in the
# current folder is not for it.
_BOOTSTRAP = "import sys, runpy; sys.path += sys.argv[2:]; runpy.run_path(sys.argv[1], run_name='__main__')"
# Beyond the time that a request has, before a compiler that nobody waits for any more ends itself.
_ORPHANED_SECONDS = 5


def ask(request: dict[str, Any], seconds: float = math.inf) -> dict[str, Any]:
    """Return a compiler's answer to one request.

    Raises KernelError past `seconds`, or where the compiler ends; DeviceUnavailable where NVRTC is not installed.
    """
    child = _POOL.take()
    try:
        answer = child.ask(
            {**request, "alarm": 0 if math.isinf(seconds) else int(seconds) + _ORPHANED_SECONDS}, seconds
        )
    except BaseException:  # Ctrl-C too: what it compiles is of no use to anybody
        child.end()
        raise
    _POOL.give_back(child)
    if "unavailable" in answer:
        reason = str(answer["unavailable"]).strip().splitlines()[0][:200]
        raise DeviceUnavailable(f"NVRTC, which the traffic device needs, cannot be loaded ({reason}); {INSTALL_HINT}")
    if "refused" in answer:
        raise KernelError(f"NVRTC refused a request ({answer['refused']}); check kernel names and options")
    return answer


class _Child:
    def __init__(self) -> None:
        command = [sys.executable, "-I", "-c", _BOOTSTRAP, str(_SERVER), *sys.path]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        """Put lines in the queue, an empty one at the end: reading itself could not be given up."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        filename = request.get("filename", "NVRTC")
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._answers.get(timeout=None if math.isinf(seconds) else seconds)
        except queue.Empty:
            raise KernelError(
                f"{filename} has been compiled for {seconds:g} s without an end; "
                "give the compiler less to do, or raise --bandwidth-traffic-timeout"
            ) from None
        except OSError:
            line = ""
        if not line:
            raise KernelError(
                f"the compiler ended while it read {filename} (status {self._process.wait()}); "
                "it may have run out of the 4 GiB that it may take: give it less to do"
            )
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:  # what was not read any more
                    continue


class _Pool:
    """Keep idle compilers: one is started where all are busy, as with several threads."""

    def __init__(self) -> None:
        self._idle: list[_Child] = []
        self._owner = os.getpid()

    def take(self) -> _Child:
        if self._owner != os.getpid():  # a fork: these are its parent's
            self._idle, self._owner = [], os.getpid()
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
            child.end()
        return _Child()

    def give_back(self, child: _Child) -> None:
        self._idle.append(child)

    def close(self) -> None:
        while self._owner == os.getpid() and self._idle:
            self._idle.pop().end()


_POOL = _Pool()
atexit.register(_POOL.close)
