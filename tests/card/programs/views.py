"""What a launch makes of views: `told` says it for any device, the program for the card."""

import json
from typing import Any

import numpy as np

from pytest_bandwidth.devices.base import Device, Launch
from pytest_bandwidth.devices.kernel_source import read_source
from pytest_bandwidth.domain.errors import UsageError

VIEWS = {
    "rows": lambda x: x[2:4],
    "from an odd place on": lambda x: x.reshape(-1)[3:],
    "transposed": lambda x: x.T,
    "transposed rows": lambda x: x[2:4].T,
    "another shape": lambda x: x.reshape(2, 4, 16),
    "an axis more": lambda x: x[:, None],
    "none": lambda x: x[:0],
    "columns": lambda x: x[:, :4],
    "each other": lambda x: x.reshape(-1)[::2],
    "backwards": lambda x: x.reshape(-1)[::-1],
    "repeated": lambda x: np.broadcast_to(x[0], x.shape),
    "axes swapped": lambda x: x.reshape(2, 4, 16).swapaxes(0, 1),
}


def told(device: Device) -> dict[str, Any]:
    """Copy each view by a kernel; return what arrived or the error, and the bytes that are declared by it."""
    kernel = device.kernel(read_source("stream.cu", "copy_f32", ()))
    found: dict[str, Any] = {}
    for name, view in VIEWS.items():
        part = view(device.xp.arange(128, dtype="float32").reshape(8, 16))
        out = device.xp.zeros(part.size, np.float32)
        try:
            device.launcher(Launch(kernel, (1, 1, 1), (128, 1, 1), (out, part, np.int64(part.size))), None)()
            found[name] = out.tolist()
        except UsageError as error:
            found[name] = str(error)
        found[f"bytes of {name}"] = device.nbytes(part)
    return found


if __name__ == "__main__":
    from pytest_bandwidth.devices.cuda.device import open_cuda

    print(json.dumps(told(open_cuda(0))))
