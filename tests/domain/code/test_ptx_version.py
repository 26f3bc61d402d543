"""The version of PTX that a module says it is in, which its hash does not count."""

from __future__ import annotations

import pytest

from pytest_bandwidth.domain.code.ptx_normal_form import ptx_digest
from pytest_bandwidth.domain.code.ptx_version import in_version, newest_version, target_of, version_of

MODULE = ".version 9.5\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\nret;\n}\n"


def test_another_version_is_the_same_module():
    lowered = in_version(MODULE, (9, 0))
    assert (version_of(MODULE), version_of(lowered)) == ((9, 5), (9, 0))
    assert lowered == MODULE.replace("9.5", "9.0")
    assert ptx_digest(lowered) == ptx_digest(MODULE)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "// .version 9.5",
        " .version 9.5",
        ".version 9",
        ".version 9.5 .entry k()",
        ".version 9999.5",
        "\n.version 9.5",
    ],
)
def test_a_version_stands_alone_in_the_first_line(line):
    text = MODULE.replace(".version 9.5", line)
    assert version_of(text) is None
    assert in_version(text, (9, 0)) == text


@pytest.mark.parametrize(
    ("cuda", "ptx"),
    [
        ((11, 8), (7, 8)),
        ((12, 0), (8, 0)),
        ((12, 5), (8, 5)),
        ((12, 6), (8, 5)),
        ((12, 8), (8, 7)),
        ((12, 9), (8, 8)),
        ((13, 0), (9, 0)),
        ((13, 5), (9, 5)),
    ],
)
def test_the_newest_version_follows_the_drivers_cuda(cuda, ptx):
    assert newest_version(cuda) == ptx


@pytest.mark.parametrize(
    ("line", "target"), [(".target sm_90", "sm_90"), (".target sm_90a, debug", "sm_90a"), ("", None)]
)
def test_the_architecture_stands_in_its_line(line, target):
    assert target_of(MODULE.replace(".target sm_90", line)) == target
