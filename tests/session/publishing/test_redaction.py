"""What a document must not say: credentials; host, user and absolute paths where that is asked."""

import getpass
import json
import platform
from pathlib import Path

import pytest

from pytest_bandwidth.session.publishing.publish import cleaner, redacted

HOST, USER = "build-node-7", "mallory"
ROOT = Path("/srv/user/project")


@pytest.fixture
def clean(monkeypatch):
    monkeypatch.setattr(platform, "node", lambda: HOST)
    monkeypatch.setattr(getpass, "getuser", lambda: USER)
    monkeypatch.setattr(Path, "home", lambda: Path(f"/home/{USER}"))
    return cleaner(ROOT, ["other-node"], private=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("HTTPError: 403 for https://user:pass@host/x", "HTTPError: 403 for https://***@host/x"),
        ("s3://key:secret@bucket/history: denied", "s3://***@bucket/history: denied"),
        ("GET https://host/x?token=abc&a=b failed", "GET https://host/x?*** failed"),
        ("see /home/mallory/x.py", "see /home/mallory/x.py"),
    ],
)
def test_credentials_are_masked_in_any_document(text, expected):
    clean = cleaner(ROOT, private=False)
    told = redacted({"results": [{"message": text, "findings": [{"text": text}]}], "key": text}, clean)
    assert told == {"results": [{"message": expected, "findings": [{"text": expected}]}], "key": expected}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/srv/user/project/tests/a.py:3: broken", "./tests/a.py:3: broken"),
        ("--bandwidth-json=/home/mallory/out/run.json", "--bandwidth-json=~/out/run.json"),
        ("FileNotFoundError: '/home/eve/data.bin'", "FileNotFoundError: '~/data.bin'"),
        ("/opt/cuda/lib64/libnvrtc.so.13 is missing", "…/libnvrtc.so.13 is missing"),
        ("by mallory on build-node-7", "by user on host-"),
        ("other-node was lost", "host-"),
        (
            "20.1 GB/s (76 % of the probe's 26.6 GB/s), read/write",
            "20.1 GB/s (76 % of the probe's 26.6 GB/s), read/write",
        ),
        ("tests/a/b.py::test_c", "tests/a/b.py::test_c"),
        ("https://example.org/a/b/c", "https://example.org/a/b/c"),
    ],
)
def test_where_it_ran_is_left_out_where_that_is_asked(clean, text, expected):
    told = clean(text)
    assert told.startswith(expected)
    assert not any(name in told for name in (HOST, USER, "eve", "/opt", "/srv", "other-node"))


def test_names_of_tests_and_figures_stay(clean):
    row = {"nodeid": f"t.py::test[{HOST}]", "key": "k", "samples": [1.0, 2.0], "counts": {"a": 3}, "label": None}
    assert redacted(row, clean) is row


TESTS = """
import pytest

def test_fails(bandwidth):
    bandwidth(len, "a" * 100, reads=100)
    raise OSError("https://user:hunter2@host/x, " + __file__)

@pytest.mark.bandwidth(min_gbps=10**6)
def test_is_slow(bandwidth):
    bandwidth(len, "a" * 100, reads=100)
"""


def test_nothing_of_the_host_is_in_what_a_private_run_writes(project):
    pytest.importorskip("duckdb")
    project.file("test_it.py", TESTS)
    private = ("-obandwidth_private=true", "-obandwidth_confirm=0")
    project.run_here(
        *private, "--bandwidth-dir=out", "--bandwidth-history=store", f"--bandwidth-json={project.path}/r.json"
    )
    written = [path for path in project.path.rglob("*") if path.suffix in (".json", ".csv", ".html", ".parquet")]
    assert {path.suffix for path in written} == {".json", ".csv", ".html", ".parquet"}
    for path in written:
        held = path.read_bytes()
        for word in ("hunter2", str(project.path), str(Path.home())):
            assert word.encode() not in held, path
    environment = json.loads((project.path / "r.json").read_text())["environment"]
    assert environment["host"].startswith("host-")
    assert platform.node() not in json.dumps(environment)
