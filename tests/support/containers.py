"""Put PTX and cubins into fatbin containers, and those into a library, by hand: for tests that do without nvcc."""

from __future__ import annotations

import struct

PTX, MACHINE_CODE = 1, 2
_HEADER = 64


def fatbin(*elements: tuple[int, int, bytes]) -> bytes:
    """Return a container of elements: kind, architecture, data."""
    body = b"".join(
        struct.pack("<HHIQIIIIIIQQQ", kind, 1, _HEADER, len(data), 0, 0, 0, arch, 0, 0, 0x11, 0, 0) + data
        for kind, arch, data in elements
    )
    return b"\x50\xed\x55\xba" + struct.pack("<HHQ", 1, 16, len(body)) + body


def library(container: bytes, machine: int = 62) -> bytes:
    """Return an ELF file whose section for kernels holds that. machine: x86-64."""
    names = b"\0.shstrtab\0.nv_fatbin\0"
    parts, at, headers = b"", _HEADER, struct.pack("<IIQQQQIIQQ", *([0] * 10))
    for name, data in ((1, names), (11, container)):
        headers += struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, at, len(data), 0, 0, 1, 0)
        parts, at = parts + data, at + len(data)
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head += struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 0, at, 0, _HEADER, 0, 0, _HEADER, 3, 1)
    return head + parts + headers


def copying(kernel: str, target: str = "sm_90a", value: str = "%f1") -> str:
    """Return PTX of a kernel that copies 32 floats."""
    return f"""// by hand
.version 8.3
.target {target}
.address_size 64
.visible .entry {kernel}(.param .u64 out, .param .u64 in)
{{
.reg .f32 %f<3>; .reg .b32 %r<2>; .reg .b64 %rd<7>;
ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [in];
cvta.to.global.u64 %rd3, %rd1; cvta.to.global.u64 %rd4, %rd2;
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd5, %r1, 4; add.s64 %rd6, %rd4, %rd5;
ld.global.f32 %f1, [%rd6]; add.s64 %rd6, %rd3, %rd5;
st.global.f32 [%rd6], {value};
ret;
}}
"""
