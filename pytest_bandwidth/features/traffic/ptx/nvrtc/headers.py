"""Stand in for headers of the host that kernels include and NVRTC lacks, where that changes nothing they mean.

NVRTC itself declares what math.h, string.h, assert.h and printf offer to device code.
"""

from __future__ import annotations

_INTEGERS = "\n".join(
    f"using ::cuda::std::{sign}int{kind}{bits}_t;"
    for sign in ("", "u")
    for kind in ("", "_least", "_fast")
    for bits in (8, 16, 32, 64)
)
_STDINT = f"""#pragma once
#include <cuda/std/cstdint>
{_INTEGERS}
using ::cuda::std::intptr_t; using ::cuda::std::uintptr_t;
using ::cuda::std::intmax_t; using ::cuda::std::uintmax_t;
"""
_CSTDINT = f"#pragma once\n#include <stdint.h>\nnamespace std {{\n{_INTEGERS}\n}}\n"
_NOTHING = "#pragma once\n"
HEADERS: dict[str, str] = {
    "stdint.h": _STDINT,
    "cstdint": _CSTDINT,
    "stddef.h": "#pragma once\n#include <cuda/std/cstddef>\nusing ::cuda::std::size_t; using ::cuda::std::ptrdiff_t;\n",
    **dict.fromkeys(("stdio.h", "math.h", "string.h", "assert.h"), _NOTHING),
}
# Headers of the standard library that CCCL has for device code, as <cuda/std/NAME>.
OF_CUDA_STD = frozenset(
    (
        "algorithm",
        "array",
        "atomic",
        "bit",
        "bitset",
        "cassert",
        "cfloat",
        "chrono",
        "climits",
        "cmath",
        "complex",
        "concepts",
        "cstddef",
        "cstdint",
        "cstdlib",
        "cstring",
        "ctime",
        "execution",
        "expected",
        "functional",
        "initializer_list",
        "iterator",
        "limits",
        "mdspan",
        "memory",
        "numbers",
        "numeric",
        "optional",
        "ratio",
        "span",
        "string_view",
        "tuple",
        "type_traits",
        "utility",
        "variant",
        "version",
    )
)
