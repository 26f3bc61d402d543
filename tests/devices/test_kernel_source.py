"""What a test gives for a kernel is a file's name or text; anything else is told in one line."""

from pathlib import Path

import pytest
from containers import MACHINE_CODE, PTX, copying, fatbin, library

from pytest_bandwidth.devices import kernel_source
from pytest_bandwidth.devices.base import CompiledCode
from pytest_bandwidth.devices.code.compiled import for_architecture
from pytest_bandwidth.devices.kernel_source import headers_digest, include_folders, read_source
from pytest_bandwidth.domain.errors import KernelError


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (None, r"kernel: found None, expected text \(str\): a file's name, CUDA C\+\+ or PTX"),
        (b"x.cu", r"kernel: found b'x\.cu', expected text \(str\)"),
        (" ", r"kernel: found ' ', expected text \(str\): a file's name"),
        (".", r"kernel: found the folder .*, expected a file of CUDA C\+\+ text"),
        ("//\n\n.version 8.3\n.target sm_90\n", "the PTX: it has none: name the kernel that is meant"),
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
        ({"options": "-DN=1"}, "found '-DN=1' for options, expected a list or tuple of texts"),
        ({"options": (3,)}, r"found \(3,\) for options"),
        ({"name_expressions": 3}, "found 3 for name_expressions"),
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


def test_ptx_is_a_source_of_its_own_kind(tmp_path):
    text = copying("k")
    (tmp_path / "k.ptx").write_text(text)
    expected = CompiledCode(text.encode(), 90, is_ptx=True, is_exact=True)
    for source in (text, "k.ptx", tmp_path / "k.ptx"):
        found = read_source(source, None, (tmp_path,))
        assert (found.name, found.text, found.compiled) == ("k", "", (expected,))
    assert (for_architecture([expected], 90), for_architecture([expected], 100)) == ([expected], []), "sm_90a is exact"
    assert read_source(f"{SOURCE}\n/*\n.version 8.3\n*/", "k", ()).compiled == ()


@pytest.mark.parametrize("wrap", [fatbin, lambda *elements: library(fatbin(*elements) + bytes(8) + fatbin())])
def test_a_kernel_is_found_in_a_library_by_its_symbol(tmp_path, wrap):
    texts = {symbol: copying(symbol) for symbol in ("k", "_Z5scalePf")}
    (tmp_path / "libx.so").write_bytes(wrap(*((PTX, 90, f"{text}\0".encode()) for text in texts.values())))
    for symbol, text in texts.items():
        found = read_source("libx.so", symbol, (tmp_path,))
        assert found.compiled == (CompiledCode(text.encode(), 90, is_ptx=True, is_exact=True),)
    with pytest.raises(KernelError, match=r"libx\.so has no kernel 'scale', it has _Z5scalePf, k$"):
        read_source("libx.so", "scale", (tmp_path,))
    with pytest.raises(KernelError, match=r"libx\.so: it has _Z5scalePf, k: name the kernel that is meant"):
        read_source("libx.so", None, (tmp_path,))


def test_of_many_kernels_a_few_are_listed_of_the_file_as_it_is_now(tmp_path):
    (tmp_path / "k.fatbin").write_bytes(fatbin((PTX, 90, copying("first").encode())))
    assert read_source("k.fatbin", None, (tmp_path,)).name == "first"
    text = "".join(f".visible .entry {'x' * 300}{number}() {{ ret; }}\n" for number in range(5000))
    (tmp_path / "k.fatbin").write_bytes(fatbin((PTX, 90, f".version 8.3\n.target sm_90\n{text}".encode())))
    with pytest.raises(KernelError, match=r"and 4995 more$") as told:
        read_source("k.fatbin", "k", (tmp_path,))
    assert len(str(told.value)) < 1500


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("k.ptx", b".amdgcn_target", r"k\.ptx holds no PTX, expected text that begins with \.version"),
        ("k.ptx", b"\xff\xfe", r"k\.ptx cannot be read as UTF-8 text"),
        ("k.ptx", copying("k")[:60].encode(), "has no kernel 'k', it has none"),
        ("k.so", library(b""), r"k\.so holds no CUDA kernels, expected PTX or machine code for NVIDIA's GPUs"),
        ("k.so", library(fatbin((PTX, 90, b"")))[:300], "holds no CUDA kernels"),
        ("k.cubin", library(b"", machine=190), "has no kernel 'k', it has none"),
        ("k.fatbin", fatbin((MACHINE_CODE, 90, b"no cubin")), "has no kernel 'k', it has none"),
        ("k.fatbin", fatbin((77, 90, b"of another kind")), "holds no CUDA kernels"),
        ("k.fatbin", fatbin((PTX, 90, b""))[:-8], "holds no CUDA kernels"),
        ("k.o", library(fatbin((PTX, 90, b"")).replace(b"\x11\0", b"\x11\xa0")), "some of it cannot be unpacked"),
    ],
)
def test_compiled_code_without_the_kernel_is_told(tmp_path, name, data, said):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(KernelError, match=said):
        read_source(name, "k", (tmp_path,))


def test_files_that_are_too_large_are_not_read(tmp_path, monkeypatch):
    with (tmp_path / "k.ptx").open("w") as file:
        file.truncate(30 * 2**20)
    with pytest.raises(KernelError, match=r"k\.ptx is larger than 16 MiB, expected CUDA C\+\+ text or PTX"):
        read_source("k.ptx", "k", (tmp_path,))
    monkeypatch.setattr(kernel_source, "LARGEST_READ", 100)
    (tmp_path / "k.so").write_bytes(library(fatbin()))
    with pytest.raises(KernelError, match=r"k\.so is larger than 0 MiB: build the kernel by itself"):
        read_source("k.so", "k", (tmp_path,))


@pytest.mark.parametrize("given", [{"options": ("-DN=1",)}, {"name_expressions": ("k",)}])
def test_what_is_compiled_already_takes_no_options(tmp_path, given):
    (tmp_path / "k.fatbin").write_bytes(fatbin((PTX, 90, copying("k").encode())))
    for source, what in ((copying("k"), "PTX"), ("k.fatbin", r"k\.fatbin")):
        expected = f"found {next(iter(given))}= for {what}, which is compiled already: leave it out"
        with pytest.raises(KernelError, match=expected):
            read_source(source, "k", (tmp_path,), **given)
