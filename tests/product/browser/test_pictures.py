"""README's pictures: benchmarks/pictures.py draws both of a saved run, and those that are kept stay small."""

import json
import re
import struct
import sys
from xml.etree import ElementTree

import run_documents
from chromium import CHROMIUM, end_without
from documented import ROOT
from repositories import run

MOST_BYTES = 120_000


def test_both_pictures_of_a_saved_run_are_drawn(tmp_path):
    if CHROMIUM is None:
        end_without("the page is drawn by a real browser, and no Chromium is here: apt-get install chromium")
    rows = run_documents.outcomes(8, failing=1, unjudged=1)
    (tmp_path / "run.json").write_text(json.dumps(run_documents.run_document(rows)), encoding="utf-8")
    drawn = run(sys.executable, ROOT / "benchmarks" / "pictures.py", "run.json", "-o", ".", cwd=tmp_path)
    assert drawn.returncode == 0, drawn.stdout + drawn.stderr
    text = "".join(ElementTree.parse(tmp_path / "terminal.svg").getroot().itertext()).replace("\xa0", " ")
    assert re.search(r"REGRESSED: \d.* slower than the baseline.*8 measured: 1 REGRESSED", text, re.DOTALL)
    header = (tmp_path / "report.png").read_bytes()[:24]
    assert (header[1:4], *struct.unpack(">II", header[16:])) == (b"PNG", 1100, 800)


def test_readmes_pictures_are_there_and_small():
    files = re.findall(r"!\[[^]]+\]\(([^)]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert files == ["docs/terminal.svg", "docs/report.png"]
    assert sum((ROOT / file).stat().st_size for file in files) <= MOST_BYTES
