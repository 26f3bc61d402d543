"""Measure what `honest` costs a measurement, and whether its timed samples are slower.

    python benchmarks/honest.py [--pairs 10] [--mib 64]

One test, measured alternately with and without `honest`: an add of three arrays that are so large together, on the
host. It prints the seconds of a whole measurement, the samples that it took, and the median sample. Each column ends
with the ratio of both, the median over pairs. Then the same of two measurements without, which shows the noise.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

_TEST = """
@pytest.mark.bandwidth(honest={honest})
@pytest.mark.parametrize("number", range({pairs}))
def test_{name}(bandwidth, number):
    size = ({mib} << 20) // 12
    a, b, c = bandwidth.random(size), bandwidth.random(size), bandwidth.empty(size)
    started = time.perf_counter()
    taken = bandwidth(np.add, a, b, out=c, reads=(a, b), writes=c)
    seconds = time.perf_counter() - started
    row = {{"mode": {name!r}, "number": number, "seconds": seconds, "samples": len(taken.samples)}}
    with open("rows.jsonl", "a") as file:
        file.write(json.dumps({{**row, "sample": taken.seconds}}) + "\\n")
"""
_ALTERNATE = """
def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: (item.callspec.params["number"], item.name))
"""
FIGURES = ("seconds", "samples", "sample")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--mib", type=int, default=64)
    options = parser.parse_args()
    for there, here in (("plain", "honest"), ("plain", "plain_again")):
        rows = measured(options.pairs, options.mib, (there, here))
        print(f"{'':12}{'measurement':>14}{'samples':>10}{'a sample':>12}")
        for name in (there, here):
            seconds, samples, sample = (median(row[figure] for row in rows[name]) for figure in FIGURES)
            print(f"{name:12}{seconds:12.2f} s{samples:10.0f}{sample * 1e3:9.3f} ms")
        ratios = [
            median(new[figure] / old[figure] for old, new in zip(rows[there], rows[here], strict=True))
            for figure in FIGURES
        ]
        print(f"{'ratio':12}{ratios[0]:14.3f}{ratios[1]:10.3f}{ratios[2]:12.3f}\n")


def measured(pairs: int, mib: int, names: tuple[str, str]) -> dict[str, list[dict[str, float]]]:
    """Return the rows of both modes, in the order taken, from one run of pytest."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tests = [_TEST.format(honest=one == "honest", pairs=pairs, mib=mib, name=one) for one in names]
        (folder / "test_honest.py").write_text(
            "".join(("import json, time\nimport numpy as np\nimport pytest\n", *tests))
        )
        (folder / "conftest.py").write_text(_ALTERNATE)
        (folder / "pytest.ini").write_text("[pytest]\n")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "--bandwidth-device=cpu"]
        subprocess.run(command, cwd=folder, env=dict(os.environ), check=True, stdout=subprocess.DEVNULL)
        rows: dict[str, list[dict[str, float]]] = {one: [] for one in names}
        for line in (folder / "rows.jsonl").read_text().splitlines():
            row = json.loads(line)
            rows[row["mode"]].append(row)
    # Beside busy processes a measurement may be left without a sample that counts.
    pairs_of_rows = [pair for pair in zip(*rows.values(), strict=True) if all(row["samples"] for row in pair)]
    return {one: [pair[place] for pair in pairs_of_rows] for place, one in enumerate(names)}


if __name__ == "__main__":
    main()
