"""The shipped kernels as hiprtc, by which CuPy compiles on AMD, would see them: as far as a preprocessor shows it."""

import shutil
import subprocess
from pathlib import Path

import pytest
from children import HANGS_SECONDS

from pytest_bandwidth.devices.kernel_source import shipped_files, shipped_folder

# What hiprtc defines (-D__HIPCC_RTC__, and clang for HIP the rest). Its own headers leave no macros: they are built in,
# preprocessed, so that __HIP_PLATFORM_AMD__ is not among them.
DEFINED = ("-D__HIPCC_RTC__", "-D__HIPCC__", "-D__HIP__", "-D__HIP_DEVICE_COMPILE__=1")


@pytest.fixture(scope="module")
def preprocessor() -> str:
    found = shutil.which("g++") or shutil.which("clang++")
    if found is None:
        pytest.skip("no C++ compiler on this machine")
    return found


@pytest.mark.parametrize("name", shipped_files())
def test_hiprtc_is_given_no_header_and_none_of_cudas_calls(preprocessor: str, name: str) -> None:
    done = subprocess.run(
        [preprocessor, "-E", "-P", "-x", "c++", *DEFINED, str(Path(shipped_folder(), name))],
        capture_output=True,
        text=True,
        timeout=HANGS_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "0xffffffffu" not in done.stdout  # CUDA's masks are of 32 lanes, HIP's of 64
    assert "asm" not in done.stdout
