"""Processes that have the emulated card: programs that print what they saw as JSON, and whatever else Python runs."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
PROGRAMS = TESTS / "card" / "programs"
HANGS_SECONDS = 3000
# Each process of a dozen would load plugins that take no part, and rewrite assertions; CuPy would load ml_dtypes, a
# third of its start, whose types are for the built-in suite and tests/gpu.
ALONE = {
    "EMULATED_CARD_ML_DTYPES": "absent",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTEST_ADDOPTS": "-p bandwidth -p no:cacheprovider -p no:unraisableexception --assert=plain",
}
# How CuPy loads kernels: as text that the driver compiles, or, where nobody asks for that, as NVRTC's machine code.
PTX, MACHINE_CODE = {"CUPY_COMPILE_WITH_PTX": "1"}, {"CUPY_COMPILE_WITH_PTX": "0"}
# A cache and a memory so small that little data is enough, since each sample is a real launch.
HEALTHY_PACE = 0.02
SMALL = {"L2_BYTES": 1 << 13, "MEMORY_PACE": HEALTHY_PACE}
NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Card:
    """A card's folder of state. Each test has its own, so that its first process is number 0, whatever ran before.

    counting: variables that make its processes' lines count for `make coverage`.
    """

    state: Path
    counting: dict[str, str] = field(default_factory=dict)

    def environment(self, settings: dict[str, object]) -> dict[str, str]:
        from emulated_card.environment import card_environment

        return {**card_environment(self.state, settings), **self.counting}

    def run(self, args: list[str], settings: dict[str, object], **more: Any) -> subprocess.CompletedProcess[str]:
        """Run Python with the card."""
        environment = {**self.environment(settings), **more.pop("env", {})}
        return subprocess.run(
            [sys.executable, *args],
            capture_output=True,
            text=True,
            timeout=HANGS_SECONDS,
            env=environment,
            check=False,
            **more,
        )

    def told(self, program: str, env: Mapping[str, str] = PTX, **settings: object) -> Any:
        """Run one of `PROGRAMS` and return what its last line says."""
        done = self.run([str(PROGRAMS / f"{program}.py")], settings, env={**ALONE, **env})
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def tested(
        self, folder: Path, *args: str, env: Mapping[str, str] = NOTHING, **settings: object
    ) -> tuple[int, str, list[Any]]:
        """Run a folder's tests; returns the exit status, what was printed, and the results."""
        out = folder / "out.json"
        out.unlink(missing_ok=True)
        command = ["-m", "pytest", "--bandwidth-device=cuda", "--bandwidth-max-time=0.05", f"--bandwidth-json={out}"]
        done = self.run([*command, *args], settings, cwd=folder, env={**ALONE, **env})
        rows = json.loads(out.read_text())["results"] if out.exists() else []
        return done.returncode, done.stdout + done.stderr, rows

    def judged(
        self, folder: Path, *args: str, env: Mapping[str, str] = PTX, **settings: object
    ) -> tuple[int, str, list[Any]]:
        """Run a folder's tests against its base.yaml, as `tested`."""
        # Updates take one run, for time's sake.
        short = ("-q", "--bandwidth-min-samples=10", "-obandwidth_runs=1", "--bandwidth-baseline=base.yaml")
        return self.tested(folder, *short, *args, env=env, **{**SMALL, **settings})
