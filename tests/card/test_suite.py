"""The built-in suite on the card: every operation passes, or skips and says why. `make gpu` has the quick one."""

import json
import os
import xml.etree.ElementTree as ET
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from card_processes import ALONE, TESTS, Card

SHORT = ("--bandwidth-max-time=0.01", "--bandwidth-min-samples=3", "--bandwidth-precision=5%")
# Little memory, and so small arrays; one multiprocessor, so that a probe's threads still take several elements each,
# and so small a cache that no sample needs a flush.
SMALL = {"MEMORY_BYTES": 2 << 30, "BUS_BITS": 8, "SM_COUNT": 1, "L2_BYTES": 8 << 10}


def run_suite(card: Card, folder: Path, *more: str, **settings: object) -> tuple[dict[str, str], dict[str, Any]]:
    """Run the suite; return why each test skipped, "" where it did not, and the rows of what was measured."""
    results, junit = folder / "out.json", folder / "junit.xml"
    args = ["-m", "pytest", "-p", "small_suite", "--pyargs", "pytest_bandwidth.suite", *SHORT]
    args += ["--bandwidth-device=cuda", f"--bandwidth-json={results}", f"--junitxml={junit}", *more]
    paths = [card.environment({})["PYTHONPATH"], str(TESTS / "support")]
    env = {**ALONE, "EMULATED_CARD_ML_DTYPES": "", "PYTHONPATH": os.pathsep.join(paths)}
    done = card.run(args, {**SMALL, **settings}, cwd=folder, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    cases = {case.attrib["name"]: case.find("skipped") for case in ET.parse(junit).iter("testcase")}
    reasons = {name: "" if skipped is None else skipped.attrib["message"] for name, skipped in cases.items()}
    rows = json.loads(results.read_text())["results"] if results.exists() else []
    return reasons, {row["nodeid"].partition("::")[2]: row for row in rows}


def test_the_full_suite_is_measured(card: Card, tmp_path: Path) -> None:
    reasons, rows = run_suite(card, tmp_path, "--bandwidth-suite=full", DEVICES=2)
    assert len(reasons) > 100
    skipped = {name: reason for name, reason in reasons.items() if reason}
    if find_spec("ml_dtypes") is None:
        skipped = {name: reason for name, reason in skipped.items() if "pip install ml_dtypes" not in reason}
    assert skipped == {}
    assert set(rows) == {name for name, reason in reasons.items() if not reason}
    assert {name: row["reason"] for name, row in rows.items() if row["reason_code"] != "no-baseline"} == {}


def test_what_is_missing_is_a_reason_to_skip(card: Card, tmp_path: Path) -> None:
    reasons, rows = run_suite(card, tmp_path, "-k", "gemm-library or peer_to_peer", CUBLAS="absent")
    assert rows == {}
    for name, reason in reasons.items():
        if "peer_to_peer" in name:
            assert "a peer copy needs two GPUs, this machine shows one" in reason
        else:
            assert "CuPy's matrix product needs cuBLAS, which does not load" in reason
            assert "pip install 'cuda-toolkit[cublas]==13.*'" in reason
    assert len(reasons) >= 3
