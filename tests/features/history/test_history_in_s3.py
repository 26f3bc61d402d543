"""A history in S3, through s3fs, at a server of this machine's (moto): what object stores do, file systems do not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from children import HANGS_SECONDS
from histories import finished, start
from user_project import COPY, LINK

from pytest_bandwidth.domain.text import Address
from pytest_bandwidth.features.history.reading import known_runs

for _module in ("duckdb", "ruptures", "s3fs", "moto.server"):
    pytest.importorskip(
        _module, reason=f"{_module} is not installed: pip install 'pytest-bandwidth[bucket]' s3fs 'moto[server]'"
    )

# A process of its own: what its libraries warn of is nothing to these tests.
_SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Give the endpoint of an S3 that ends with the tests."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


@pytest.fixture(autouse=True)
def url(server, tmp_path, monkeypatch, request) -> str:
    """An address in a bucket that is there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    environment = {
        "AWS_ACCESS_KEY_ID": "some-key",
        "AWS_SECRET_ACCESS_KEY": "some-secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": server,
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    import s3fs

    # fsspec keeps what it opened, whatever the environment says meanwhile.
    s3fs.S3FileSystem.clear_instance_cache()
    bucket = f"bucket-{abs(hash(request.node.name))}"
    s3fs.S3FileSystem(skip_instance_cache=True).mkdir(bucket)
    return f"s3://{bucket}/team/history"


def names_in(url: str) -> list[str]:
    import s3fs

    return sorted(name.rpartition("/")[2] for name in s3fs.S3FileSystem(use_listings_cache=False).ls(url))


@pytest.mark.processes
def test_runs_of_pytest_append_and_the_command_reads(command, url, tmp_path):
    (tmp_path / "test_copy.py").write_text(COPY)
    options = ("-p", "no:cacheprovider", "--bandwidth-max-time=0.05", "--bandwidth-min-samples=5", "-W", "error")
    arguments = [sys.executable, "-m", "pytest", *options, "--bandwidth-device=cpu", f"--bandwidth-history={url}"]
    for _ in range(2):
        run = subprocess.run(
            arguments, cwd=tmp_path, capture_output=True, text=True, timeout=HANGS_SECONDS, check=False
        )
        assert (run.returncode, run.stderr) == (0, ""), run.stdout
        assert f"wrote {url}/" in run.stdout
    found = command("history", url, "--sql", "SELECT count(*) AS runs, min(test) AS test FROM history")
    assert (found.status, found.out.split()) == (0, ["runs", "test", "2", "test_copy.py::test_copy"])


def test_writers_and_mergers_at_once_lose_nothing(url, tmp_path):
    writers = [start(url, f"w{i}", 8, runs_before_merge=5, cache=tmp_path / f"cache{i}") for i in range(3)]
    seen: set[str] = set()
    while any(writer.poll() is None for writer in writers):
        runs = known_runs(Address(url))
        assert seen <= runs
        seen = runs
    told = [run_id for writer in writers for run_id in finished(writer)]
    assert known_runs(Address(url)) == set(told)
    assert len(told) == 24
    assert any(name.startswith("merged-w") for name in names_in(url))


def test_a_bucket_that_is_not_there_is_said_and_an_empty_one_or_a_consoles_folder_is_no_error(command, url):
    said = command("history", "s3://no-such-bucket/history", "--by", "gpu")
    assert said.status == 2
    assert said.err == (
        "pytest-bandwidth history: s3://no-such-bucket/history: cannot be listed: The specified bucket does not exist"
        f"{LINK}\n"
    )
    import s3fs

    assert known_runs(Address(url)) == set()
    s3fs.S3FileSystem().pipe_file(f"{url}/", b"")
    assert known_runs(Address(url)) == set()
