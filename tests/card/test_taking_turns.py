"""One process measures on the card at a time."""

import subprocess
import sys
from pathlib import Path

from card_processes import ALONE, PROGRAMS, Card

PLUS_ONE = """
def test_plus_one(bandwidth):
    x = bandwidth.random(1 << 16, "float32")
    bandwidth(lambda: x + 1, reads=x)
"""


def test_a_run_names_the_process_that_it_waited_for(card: Card, tmp_path: Path) -> None:
    (tmp_path / "test_plus_one.py").write_text(PLUS_ONE)
    with subprocess.Popen(
        [sys.executable, str(PROGRAMS / "holds_lock.py")],
        env=card.environment({}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        try:
            assert holder.stdout.readline() == "held\n"
            args = ("-o", "bandwidth_lock_timeout=0.1", "--bandwidth-device=cuda")
            done = card.run(["-m", "pytest", *args], {}, cwd=tmp_path, env=ALONE)
        finally:
            holder.kill()
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"is being measured by process {holder.pid}" in done.stdout
