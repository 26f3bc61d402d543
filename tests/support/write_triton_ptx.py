"""Write what Triton makes of `triton_launches` into their folder: run it where Triton is installed, after a change.

The files are in the normal form of PTX. Softmax's keep Triton's own form, with its lines.
"""

from __future__ import annotations

import re

import triton_kernels
from triton_launches import ARCHITECTURES, FOLDER, LAUNCHES, Launch

from pytest_bandwidth.domain.code.ptx_normal_form import normal_form
from pytest_bandwidth.features.traffic.device import TrafficDevice, open_traffic


def ptx_of(device: TrafficDevice, name: str, launch: Launch) -> str:
    """Launch on a device that has begun a test; return the kernel's PTX as it is kept."""
    kind = type(device.empty(1, "int32"))
    args = (value.view(kind) if hasattr(value, "view") else value for value in launch.args.values())
    options = {"num_warps": launch.warps, "num_stages": 2, "enable_fp_fusion": True}
    compiled = getattr(triton_kernels, name)[launch.grid](*args, **launch.constants, **options)
    assert compiled.metadata.shared <= launch.shared_bytes, (name, compiled.metadata.shared)
    text: str = compiled.asm["ptx"]
    if name == "softmax":
        text = re.sub(r"//(?! begin| end).*", "", text.partition("\t.section")[0])
        text = re.sub(r'(\.file\t\d+ ").*/', r"\1", text)
        return "".join(f"{line.rstrip()}\n" for line in text.splitlines() if line.strip())
    form = normal_form(text, name)
    assert form is not None
    return form.text


if __name__ == "__main__":
    for arch in ARCHITECTURES:
        device = open_traffic(arch)
        device.begin_test()
        for name, made in LAUNCHES.items():
            (FOLDER / f"{name}.{arch}.ptx").write_text(ptx_of(device, name, made()), encoding="utf-8")
        device.end_test()
