"""Compiling touches nothing of the process that compiles."""

from __future__ import annotations

from pytest_bandwidth import ptx

# Not in the cache of programs that other tests share: it has to be compiled here.
EMPTY_LOG = 'extern "C" __global__ void nothing_to_log_of() {}\n'


def test_a_compile_leaves_the_one_byte_objects_that_python_shares() -> None:
    """An empty log is one NUL byte, written where NVRTC is told to; Python has one object for each byte."""
    module = ptx.compile_ptx(EMPTY_LOG)
    assert module.log == ""
    assert [chr(code).encode("latin-1")[0] for code in range(256)] == list(range(256))
