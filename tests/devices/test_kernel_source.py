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
        ("//\n\n.version 8.3\n.target sm_90\n", r"kernel: found PTX in the text, expected CUDA C\+\+: a \.cu file"),
        ("nope.cu", r"no kernel file 'nope\.cu' in .*; shipped files are .*stream\.cu"),
    ],
)
def test_what_is_no_kernel_is_told(tmp_path, source, said):
    with pytest.raises(KernelError, match=f"^{said}"):
        read_source(source, None, (tmp_path,))


def test_a_shipped_file_does_not_stand_in_for_one_of_the_same_name(tmp_path):
    (tmp_path / "kernels").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "stream.cu").write_text(SOURCE)
    folders = (tmp_path / "tests", tmp_path)
    assert read_source("stream.cu", "triad_f32", folders).shipped
    (tmp_path / "kernels" / "softmax.cu").write_text(SOURCE)
    with pytest.raises(KernelError, match=r"ships a softmax\.cu, and kernels/softmax\.cu is yours: say which by"):
        read_source("softmax.cu", "k", folders)
    assert not read_source("kernels/softmax.cu", "k", folders).shipped
    assert read_source("softmax.cu", "softmax_naive_f32", (tmp_path / "pytest_bandwidth" / "suite", tmp_path)).shipped


SOURCE = 'extern "C" __global__ void k(float* x) {}'


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": 3}, "found 3 for its name, expected the name of a __global__ function"),
        ({"name": " "}, "found ' ' for its name"),
        ({"options": None}, "found None for options, expected a list or tuple of texts"),
        ({"options": "-DN=1"}, "found '-DN=1' for options"),
        ({"options": (3,)}, r"found \(3,\) for options"),
        ({"name_expressions": 3}, "found 3 for name_expressions"),
        ({"name_expressions": b"k"}, "found b'k' for name_expressions"),
    ],
)
def test_what_is_no_name_and_no_list_of_options_is_told(given, said):
    with pytest.raises(KernelError, match=f"^kernel: {said}"):
        read_source(SOURCE, **{"name": "k", "folders": (), **given})


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
