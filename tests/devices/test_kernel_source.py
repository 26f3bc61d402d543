"""What a test gives for a kernel is a file's name or text; anything else is told in one line."""

import pytest

from pytest_bandwidth.devices.kernel_source import read_source
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
