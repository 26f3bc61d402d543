"""What is kept of a command line that others read."""

import pytest

from pytest_bandwidth.options.options import own_command


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["/usr/bin/pytest"], "pytest"),
        (["/lib/pytest/__main__.py", "tests"], "python -m pytest …"),
        (["pytest", "--token=hunter2", "-k", "x", "--bandwidth-json=r.json"], "pytest … --bandwidth-json=r.json"),
        (["pytest", "--bandwidth-device", "cpu", "secret"], "pytest --bandwidth-device cpu …"),
        (["pytest", "--bandwidth-strict", "secret"], "pytest --bandwidth-strict …"),
        (
            ["pytest", "--bandwidth-history=s3://key:secret@b/h", "--bandwidth-history", "gs://b/h?secret"],
            "pytest --bandwidth-history=s3://***@b/h --bandwidth-history gs://b/h?***",
        ),
    ],
)
def test_of_the_command_line_only_the_plugins_own_options_are_kept(given, kept):
    assert own_command(given) == kept
