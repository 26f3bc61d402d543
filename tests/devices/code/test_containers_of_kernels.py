"""Containers of kernels that are odd, damaged or hostile: known by what can be read, or by bytes."""

from __future__ import annotations

import os
import random
import struct
import sys
import tracemalloc
from pathlib import Path

import pytest
from nvcc import nvcc

from pytest_bandwidth.devices.code import fatbin
from pytest_bandwidth.devices.code.compiled import codes_in, digest_of_code, digest_of_file, library_of
from pytest_bandwidth.devices.code.cubin import MAGIC, code_of_file, resources_of
from pytest_bandwidth.devices.code.fatbin import unpacked_lz4, unpacked_zstd
from pytest_bandwidth.domain.code.identity import digest
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.fixture.input import checked_code

KERNEL = "__global__ void k(float* out, const float* in) { out[threadIdx.x] = in[threadIdx.x] * 3.0f; }\n"
ARCHITECTURE = ("-gencode", "arch=compute_90,code=[sm_90,compute_90]")
FLAGS, PACKED, UNPACKED = 40, 16, 56  # where an element has them
FIRST = 16  # where the first element is


def container(folder: Path, text: str = KERNEL, *, mode: str = "size") -> bytes:
    source = folder / "k.cu"
    source.write_text(text)
    return nvcc(source, folder / "k.fatbin", "-fatbin", f"-compress-mode={mode}", *ARCHITECTURE).read_bytes()


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return container(tmp_path_factory.mktemp("packed"))


def with_field(data: bytes, at: int, form: str, value: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(form, changed, FIRST + at, value)
    return bytes(changed)


def test_a_container_by_itself_is_known_by_its_kernels(packed: bytes, tmp_path: Path) -> None:
    assert digest_of_code(container(tmp_path, f"// a comment\n{KERNEL}")) == digest_of_code(packed)
    assert digest_of_code(container(tmp_path, mode="none")) == digest_of_code(packed)
    assert digest_of_code(container(tmp_path, mode="speed")) == digest_of_code(packed)
    assert digest_of_code(container(tmp_path, KERNEL.replace("3.0f", "4.0f"))) != digest_of_code(packed)


@pytest.mark.parametrize("mode", ["none", "speed", "size"])
def test_machine_code_is_found_however_it_is_packed(tmp_path: Path, mode: str) -> None:
    (code,) = (one for one in codes_in(container(tmp_path, mode=mode)) if not one.is_ptx)
    (figures,) = resources_of(code.data).values()
    assert (figures.registers > 0, figures.local_bytes, figures.shared_bytes) == (True, 0, 0)


def test_machine_code_that_cannot_be_unpacked_is_no_empty_file(packed: bytes) -> None:
    at = packed.rindex(b"\x02\0\x01\x01") - FIRST  # of an element that is machine code: its kind, its version
    assert any(code.arch < 0 for code in codes_in(with_field(packed, at + UNPACKED, "<Q", 1)))


def test_one_that_is_cut_short_is_its_bytes(packed: bytes) -> None:
    found = {digest_of_code(packed[:size]) for size in range(8, len(packed), 31)}
    assert digest_of_code(packed) not in found
    assert len(found) == len(range(8, len(packed), 31))


@pytest.mark.parametrize(
    ("at", "form", "value"),
    [
        (FLAGS, "<Q", 0x4011),  # a compression that nobody knows
        (FLAGS, "<Q", 0x2011),  # LZ4, which it is not
        (FLAGS, "<Q", 0x11),  # none
        (FLAGS, "<Q", 0xA011),  # both
        (UNPACKED, "<Q", 2**62),
        (UNPACKED, "<Q", 1),
        (PACKED, "<I", 2**32 - 1),
        (PACKED, "<I", 3),
        (4, "<I", 2**32 - 1),  # its own size
        (4, "<I", 0),
        (8, "<Q", 2**63),  # that of the data
        (20, "<I", 2**32 - 8),  # where its options are
        (0, "<H", 77),  # its kind
    ],
)
def test_an_element_that_cannot_be_read_is_its_bytes(packed: bytes, at: int, form: str, value: int) -> None:
    """Each of them still counts: another kernel in there is another identity."""
    damaged = with_field(packed, at, form, value)
    assert digest_of_code(damaged) not in (None, digest_of_code(packed))
    other = bytearray(damaged)
    other[FIRST + 64 + 40] ^= 1
    assert digest_of_code(bytes(other)) != digest_of_code(damaged)


def test_without_a_library_for_zstd_bytes_identify(
    packed: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = digest_of_code(packed)
    monkeypatch.setattr(fatbin, "_ZSTD_MODULES", ())
    assert known != digest_of_code(packed) == digest_of_code(container(tmp_path))
    assert digest_of_code(container(tmp_path, KERNEL.replace("3.0f", "4.0f"))) != digest_of_code(packed)


def test_what_elements_unpack_to_is_bounded(packed: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    known = digest_of_code(packed)
    monkeypatch.setattr(fatbin, "LARGEST_UNPACKED", {0x8000: 1000, 0x2000: 1000})
    assert digest_of_code(packed) not in (None, known)


def test_a_bomb_takes_no_memory() -> None:
    zstd = pytest.importorskip(fatbin._ZSTD_MODULES[sys.version_info < (3, 14)], reason="nothing here packs zstd")
    bomb = zstd.compress(bytes(2**27))
    tracemalloc.start()
    with pytest.raises(ValueError, match="found 1001 bytes, expected 1000"):
        unpacked_zstd(memoryview(bomb), 1000)
    # A literal, and one match that is repeated 255 bytes at a time.
    with pytest.raises(ValueError, match="outside the unpacked data"):
        unpacked_lz4(memoryview(b"\x1fA\x01\x00" + b"\xff" * 2**16 + b"\x00"), 1000)
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()


def test_lz4_unpacks_what_its_format_says() -> None:
    assert unpacked_lz4(memoryview(b"\x50hello"), 5) == b"hello"
    assert unpacked_lz4(memoryview(b"\x13A\x01\x00\x10B"), 9) == b"AAAAAAAAB"
    assert unpacked_lz4(memoryview(b"\x3fabc\x03\x00\x05\x10d"), 28) == b"abc" * 9 + b"d"
    assert unpacked_lz4(memoryview(b"\xf0\x05" + b"x" * 20), 20) == b"x" * 20


@pytest.mark.parametrize("data", [b"\x13A\x00\x00\x00", b"\x13A\x02\x00\x00", b"\x50hell", b"\xf0", b"\x13A\x01", b""])
def test_what_is_no_lz4_is_refused(data: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        unpacked_lz4(memoryview(data), 5)


def test_damaged_containers_never_crash(packed: bytes, tmp_path: Path) -> None:
    chance = random.Random(7)
    for whole in (packed, container(tmp_path, mode="speed"), container(tmp_path, mode="none")):
        for _ in range(300):
            damaged = bytearray(whole)
            for _ in range(chance.randrange(1, 6)):
                place = chance.randrange(4, chance.choice((16, 80, 200, len(whole))))
                damaged[place] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            assert digest_of_code(bytes(damaged)) is not None


def test_damaged_libraries_never_crash() -> None:
    chance = random.Random(8)
    for _ in range(2000):
        damaged = bytearray(MAGIC + bytes(chance.randrange(256) for _ in range(200)) + bytes(4096))
        struct.pack_into("<QIHHH", damaged, 0x28, chance.choice((64, 0, 2**63)), 0, 0, 0, 0)
        struct.pack_into("<HHH", damaged, 0x3A, 64, chance.choice((3, 65535)), chance.choice((0, 2, 65535)))
        digest_of_code(bytes(damaged))


def some_library() -> Path:
    from numpy._core import _multiarray_umath

    found = library_of(_multiarray_umath)
    assert found is not None
    return found


def test_a_library_is_given_as_a_path_or_a_module() -> None:
    from numpy._core import _multiarray_umath

    path = some_library()
    assert digest_of_code(path.read_bytes()) == digest(*code_of_file(path.read_bytes())), "without device code, its own"
    assert checked_code(path) == checked_code(_multiarray_umath) == checked_code(path.read_bytes())
    with pytest.raises(UsageError, match="the module random is not a compiled library, expected one, or its path"):
        checked_code(random)
    with pytest.raises(UsageError, match="the module sys is not a compiled library"):
        checked_code(sys)


def test_a_path_without_code_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.so").touch()
    os.mkfifo(tmp_path / "pipe.so")
    for name in ("empty.so", "pipe.so", "."):
        with pytest.raises(UsageError, match="no file, or an empty one, expected one with compiled code"):
            checked_code(tmp_path / name)
    with pytest.raises(UsageError, match="No such file or directory, expected a file with compiled code"):
        checked_code(tmp_path / "none.so")


def test_a_file_that_is_replaced_is_read_again(packed: bytes, tmp_path: Path) -> None:
    path, other = tmp_path / "k.fatbin", tmp_path / "other.fatbin"
    path.write_bytes(packed)
    before = digest_of_file(path)
    assert digest_of_file(path) == before
    other.write_bytes(with_field(packed, 200, "<I", 0))
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    other.replace(path)
    assert digest_of_file(path) != before
    path.write_bytes(packed)
    assert digest_of_file(path) == before
