"""A kernel writes where nothing is: its error stays."""

import json
import os
import sys

import cupy
import numpy as np

runtime = cupy.cuda.runtime
x = cupy.zeros(4, np.float32)
wild = cupy.RawKernel('extern "C" __global__ void wild(float* x) { x[1ll << 36] = 1; }', "wild")
wild((1,), (1,), (x,))
errors = []
for call in (runtime.deviceSynchronize, x.get, lambda: runtime.setDevice(0), lambda: runtime.malloc(16)):
    try:
        call()
        errors.append("")
    except runtime.CUDARuntimeError as error:
        errors.append(str(error).partition(":")[0])
print(json.dumps(errors))
sys.stdout.flush()
os._exit(0)  # CuPy's own clean-up would fail
