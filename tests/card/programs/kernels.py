"""What the driver tells of kernels, and what of the card NVML tells."""

import json

import cupy
import numpy as np
import pynvml

seen: dict[str, object] = {}
SOURCE = """
__constant__ int table[4] = {1, 2, 3, 4};
__device__ int counter = 5;
extern "C" __global__ void all(int* out, int n) {
    extern __shared__ int own[];
    own[threadIdx.x] = table[threadIdx.x & 3] + counter;
    __syncthreads();
    if ((int)threadIdx.x < n) out[threadIdx.x] = own[n - 1 - threadIdx.x];
}
"""
module = cupy.RawModule(code=SOURCE)
function = module.get_function("all")
out = cupy.zeros(8, np.int32)
function((1,), (8,), (out, np.int32(8)), shared_mem=32)
seen["constants"] = out.get().tolist()
counter = cupy.ndarray(1, np.int32, module.get_global("counter"))
counter.fill(100)
function((1,), (8,), (out, np.int32(8)), shared_mem=32)
seen["written variable"] = out.get().tolist()
seen["registers"] = function.num_regs
seen["occupancy"] = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(function.kernel.ptr, 256, 0)
try:
    function((1,), (8,), (out, np.int32(8)), shared_mem=60 * 1024)
except cupy.cuda.driver.CUDADriverError as error:
    seen["shared refused"] = str(error)
function.max_dynamic_shared_size_bytes = 60 * 1024
function((1,), (8,), (out, np.int32(8)), shared_mem=60 * 1024)
cupy.cuda.runtime.deviceSynchronize()
try:
    module.get_function("nothing")
except cupy.cuda.driver.CUDADriverError as error:
    seen["no such kernel"] = str(error)
seen["cupy's own"] = [int(cupy.arange(1000).sum()), float((cupy.ones(10, np.float32) * 3).max())]

properties = cupy.cuda.runtime.getDeviceProperties(0)
seen["properties"] = [properties["name"].decode(), properties["l2CacheSize"], properties["multiProcessorCount"]]
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByPciBusId(cupy.cuda.runtime.deviceGetPCIBusId(0))
seen["nvml"] = [pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)]
try:
    seen["bus width"] = pynvml.nvmlDeviceGetMemoryBusWidth(handle)
except pynvml.NVMLError as error:
    seen["bus width"] = str(error)
print(json.dumps(seen))
