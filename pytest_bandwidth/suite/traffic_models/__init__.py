"""Model what each operation moves through device memory and computes, as pure functions of its shape.

Conventions of every function here:

- s is the bytes per element of `dtype`: a name such as ``"float32"``, or anything with an ``itemsize``.
- "Moved" is the algorithmic minimum: for each launch every distinct byte read once plus every distinct byte written
  once, summed over the operation's launches. Caches may do worse, never better, unless they hold data from one launch
  to the next.
- "Requested" (`requested_read`, `requested_written`) is what the loads and stores ask for; it is set where a kernel of
  that kind asks for a byte more than once.
- Sizes are whole numbers of elements, at least 0; anything else raises UsageError.
"""

from pytest_bandwidth.domain.traffic import Traffic, bytes_per_element
from pytest_bandwidth.suite.traffic_models.access import broadcast, gather, misaligned, strided, transpose, warp_sectors
from pytest_bandwidth.suite.traffic_models.attention import (
    attention_flash,
    attention_standard,
    kv_cache_append,
    kv_cache_read,
)
from pytest_bandwidth.suite.traffic_models.matmul import gemm, linear
from pytest_bandwidth.suite.traffic_models.quantized import q4_0_bytes, q4_0_dequantize, q4_0_fused, q4_0_separate
from pytest_bandwidth.suite.traffic_models.rows import layer_norm, logsumexp, softmax
from pytest_bandwidth.suite.traffic_models.stream import (
    add,
    copy,
    dot,
    intensity_sweep,
    pointwise_chain,
    read,
    reduce_sum,
    repeats_at_ridge,
    scale,
    triad,
    write,
)
from pytest_bandwidth.suite.traffic_models.transfer import (
    device_to_device,
    device_to_host,
    host_to_device,
    peer_to_peer,
)

__all__ = [
    "Traffic",
    "add",
    "attention_flash",
    "attention_standard",
    "broadcast",
    "bytes_per_element",
    "copy",
    "device_to_device",
    "device_to_host",
    "dot",
    "gather",
    "gemm",
    "host_to_device",
    "intensity_sweep",
    "kv_cache_append",
    "kv_cache_read",
    "layer_norm",
    "linear",
    "logsumexp",
    "misaligned",
    "peer_to_peer",
    "pointwise_chain",
    "q4_0_bytes",
    "q4_0_dequantize",
    "q4_0_fused",
    "q4_0_separate",
    "read",
    "reduce_sum",
    "repeats_at_ridge",
    "scale",
    "softmax",
    "strided",
    "transpose",
    "triad",
    "warp_sectors",
    "write",
]
