"""What a test gives for a kernel is a file's name or text; anything else is told in one line."""

from pathlib import Path

import pytest

from pytest_bandwidth.devices.kernel_source import headers_digest, include_folders, read_source
from pytest_bandwidth.domain.errors import KernelError


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (None, r"kernel: found None, expected a file's name or CUDA C\+\+ text"),
        (b"x.cu", r"kernel: found b'x\.cu', expected a file's name"),
        (" ", r"kernel: found ' ', expected a file's name"),
        (".", r"kernel: found the folder .*, expected a file of CUDA C\+\+ text"),
        ("nope.cu", r"no kernel file 'nope\.cu' in .*; shipped files are .*stream\.cu"),
    ],
)
def test_what_is_no_kernel_is_told(tmp_path, source, said):
    with pytest.raises(KernelError, match=f"^{said}"):
        read_source(source, None, (tmp_path,))


def test_include_folders_are_told_however_they_are_written():
    options = ("-Ia", "-I", "b", "--include-path=c", "-DI=1", "-I")
    assert include_folders(options) == (Path("a"), Path("b"), Path("c"), Path())


def test_the_hash_of_headers_follows_what_is_included_and_nothing_else(tmp_path):
    beside, far = tmp_path / "beside", tmp_path / "far"
    for folder in (beside, far):
        folder.mkdir()
    (beside / "outer.cuh").write_text('#include "inner.cuh"\n  #  include <far.h>\n#include <cuda_fp16.h>\n')
    (beside / "inner.cuh").write_text('#include "outer.cuh"\n')  # in a circle, too
    (far / "far.h").write_text("one")
    (far / "unused.h").write_text("one")
    text = '#include "outer.cuh"\n#include "missing.h"\n#include "folder"\n'
    (beside / "folder").mkdir()

    def digest() -> str:
        return headers_digest(text, (beside, far))

    first = digest()
    (far / "unused.h").write_text("two")
    assert digest() == first
    for file in (far / "far.h", beside / "inner.cuh", beside / "outer.cuh"):
        before, was = digest(), file.read_text()
        file.write_text(f"{was}\n")
        assert digest() != before
    assert headers_digest(text, ()) == headers_digest("", ())
