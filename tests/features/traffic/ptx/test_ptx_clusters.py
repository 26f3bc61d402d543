"""Clusters of blocks: who is where, their barrier, and their shared memory, in which they reach each other."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_sources import MBARRIERS, program, run

from pytest_bandwidth.domain.errors import NotOnThisDevice, UsageError
from pytest_bandwidth.features.traffic import ptx

HEAD = r"""
MBARRIERS
__device__ unsigned mapped(const void* p, unsigned rank) {
    unsigned there; asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at(p)), "r"(rank)); return there;
}
struct Cluster {
    __device__ int block_rank() { int v; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(v)); return v; }
    __device__ int num_blocks() { int v; asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(v)); return v; }
    __device__ void sync() {
        asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    }
    __device__ int* map_shared_rank(int* p, int rank) {
        int* there; asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(p), "r"(rank)); return there;
    }
};
extern "C" __global__ void __cluster_dims__(CLUSTER) k(int* o, const int* x) {
    __shared__ int s[64]; __shared__ u64 full; int t = threadIdx.x; Cluster cluster;
    int rank = cluster.block_rank(), blocks = cluster.num_blocks(), b = blockIdx.x + gridDim.x * blockIdx.y;
    o += 64 * b, x += 64 * b;
    if (t == 0) init(&full, 64);
    cluster.sync();
    BODY
}
""".replace("MBARRIERS", MBARRIERS)
SYNC, SWAP = "cluster.sync();", "s[t] = x[t]; cluster.sync(); o[t] = cluster.map_shared_rank(s, rank ^ 1)[63 - t]; "
HAND = (
    "if (rank == 0) { cluster.map_shared_rank(s, 1)[t] = x[t];"
    ' asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];"'
    ' :: "r"(mapped(&full, 1)) : "memory"); }'
    " else { wait(&full, 0); o[t] = s[63 - t]; } cluster.sync();"
)


def launched(
    body: str, cluster: str = "2", grid: tuple[int, ...] = (6,)
) -> tuple[np.ndarray, np.ndarray, ptx.Execution]:
    blocks = int(np.prod(grid))
    x, o = np.arange(blocks * 64, dtype=np.int32).reshape(blocks, 64), np.zeros((blocks, 64), np.int32)
    text = HEAD.replace("CLUSTER", cluster).replace("BODY", body)
    return x, o, run(text, "k", grid, (64,), o, x, faulty=True)


def swapped(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1, 2, 64)[:, ::-1, ::-1].reshape(-1, 64)


def test_a_cluster_waits_at_its_barrier_for_a_warp_that_polls() -> None:
    """The other warp waits, as the other block does, until another cluster has passed and stored."""
    body = """volatile int* flag = o - 64 * b + 383;
    if (b == 0 && t < 32) while (*flag == 0);
    cluster.sync();
    if (b == 4 && t == 0) { __threadfence(); *flag = 1; }
    if (b < 2) o[t] = 7;"""
    _, o, execution = launched(body)
    assert not execution.faults
    np.testing.assert_array_equal(o[:2], 7)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (SWAP + SYNC, swapped),
        (  # a barrier of each block before that of the cluster, in some blocks only
            "if (rank) { s[63 - t] = x[63 - t]; __syncthreads(); } else s[t] = x[t];"
            + SYNC
            + "o[t] = cluster.map_shared_rank(s, rank ^ 1)[63 - t];"
            + SYNC,
            swapped,
        ),
        ("cluster.map_shared_rank(s, rank ^ 1)[63 - t] = x[t];" + SYNC + "o[t] = s[t];", swapped),
        (
            "s[t] = 0; cluster.sync();"
            "for (int i = 0; i < blocks; i++) atomicAdd(cluster.map_shared_rank(s + t, i), x[t]);"
            " cluster.sync(); o[t] = s[t];",
            lambda x: np.repeat(x.reshape(-1, 2, 64).sum(axis=1), 2, axis=0),
        ),
        (HAND, lambda x: np.where(np.arange(6)[:, None] % 2, np.roll(x[:, ::-1], 1, axis=0), 0)),
    ],
)
def test_blocks_of_a_cluster_exchange_values(body: str, expected: object) -> None:
    x, o, execution = launched(body)
    assert not execution.faults, [fault.text for fault in execution.faults]
    np.testing.assert_array_equal(o, expected(x))  # type: ignore[operator]
    assert execution.counts.loads.sectors == execution.counts.loads.requests * 4


@pytest.mark.parametrize(
    "body",
    [
        SWAP.replace(SYNC, ""),
        SWAP.replace(SYNC, "__syncthreads(); s[t] = x[t];"),
        SWAP + "s[t] = 3;" + SYNC,
        HAND.replace("wait(&full, 0);", ""),
        "cluster.map_shared_rank(s, 0)[t / 2] = x[t];" + SYNC,
    ],
)
def test_what_no_barrier_of_the_cluster_orders_is_a_fault(body: str) -> None:
    assert {fault.code for fault in launched(body)[2].faults} & {"race", "uninitialised"}


def test_what_a_cluster_barrier_orders_in_global_memory_is_no_race() -> None:
    body = "o[t] = x[t]; cluster.sync(); if (rank == 0) o[t] += o[t + 64];"
    _, _, execution = launched(body)
    assert not execution.faults
    assert "race" in {fault.code for fault in launched(body.replace("cluster.sync();", ""))[2].faults}


def test_places_beyond_the_other_blocks_array_are_out_of_bounds() -> None:
    faults = launched("s[t] = x[t]; cluster.sync(); o[t] = cluster.map_shared_rank(s, rank ^ 1)[t + 32];" + SYNC)[
        2
    ].faults
    assert [fault.code for fault in faults] == ["out-of-bounds"]
    assert "of s" in faults[0].text


@pytest.mark.parametrize(("cluster", "grid"), [("2, 2", (4, 6)), ("1, 3", (2, 6))])
def test_special_registers_number_blocks_and_clusters(cluster: str, grid: tuple[int, int]) -> None:
    names = ("cluster_ctarank", "cluster_nctarank", "clusterid.x", "clusterid.y", "nclusterid.x", "nclusterid.y")
    names += ("cluster_ctaid.x", "cluster_ctaid.y", "cluster_nctaid.x", "cluster_nctaid.y", "nclusterid.z")
    reads = [f'asm("mov.u32 %0, %%{name};" : "=r"(v)); if (t == {n}) o[t] = v;' for n, name in enumerate(names)]
    _, o, _ = launched("unsigned v; " + " ".join(reads) + SYNC, cluster, grid)
    nx, ny, *_ = (*map(int, cluster.split(",")), 1)
    for y in range(grid[1]):
        for x in range(grid[0]):
            expected = [x % nx + nx * (y % ny), nx * ny, x // nx, y // ny, grid[0] // nx, grid[1] // ny]
            expected += [x % nx, y % ny, nx, ny, 1]
            assert o[x + grid[0] * y][: len(names)].tolist() == expected


def test_flat_clusters_exchange_values() -> None:
    body = "s[t] = x[t]; cluster.sync(); o[t] = cluster.map_shared_rank(s, (rank + 1) % blocks)[t];" + SYNC
    x, o, execution = launched(body, "2, 2", (4, 4))
    assert not execution.faults
    tiles = x.reshape(2, 2, 2, 2, 64).transpose(0, 2, 1, 3, 4).reshape(4, 4, 64)  # cluster, rank
    expected = np.roll(tiles, -1, axis=1).reshape(2, 2, 2, 2, 64).transpose(0, 2, 1, 3, 4)
    np.testing.assert_array_equal(o, expected.reshape(16, 64))


def test_a_grid_of_parts_of_clusters_is_refused() -> None:
    with pytest.raises(UsageError, match=r"grid is \(5, 1, 1\), expected multiples of \(2, 1, 1\), the clusters of"):
        launched("", grid=(5,))


def test_samples_are_of_whole_clusters() -> None:
    x, o = np.zeros((16, 64), np.int32), np.zeros((16, 64), np.int32)
    text = HEAD.replace("CLUSTER", "4").replace("BODY", SWAP + SYNC)
    execution = ptx.execute(program(text), "k", (16,), (64,), (o, x), blocks=8)
    assert (execution.blocks_run, execution.sample_spread, len(execution.faults)) == (8, 0, 0)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("o[t] = cluster.map_shared_rank(s, 2)[t];", "mapa of rank 2 in a cluster of 2 blocks"),
        (
            'asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 16, [%2];"'
            ' :: "r"(mapped(s, 1)), "l"(x), "r"(mapped(&full, 1)));',
            "into another block's shared memory",
        ),
        (
            'asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "'
            '"[%0], [%1], 16, [%2];"'
            ' :: "r"(mapped(s, 1)), "r"(at(s)), "r"(mapped(&full, 1)));',
            r"cp\.async\.bulk\.shared::cluster\.shared::cta.* \(kernel\.cu line \d+\)",
        ),
    ],
)
def test_what_is_not_modelled_of_clusters_is_said(body: str, said: str) -> None:
    with pytest.raises(NotOnThisDevice, match=said):
        launched(body)


def test_a_reversed_index_into_another_block() -> None:
    """NVRTC maps an address before that block's memory, and adds what leads back into it."""
    source = """#include <cooperative_groups.h>
extern "C" __global__ void __cluster_dims__(4) k(float* o, const float* x) {
    __shared__ float s[64];
    auto cluster = cooperative_groups::this_cluster();
    int t = threadIdx.x;
    s[t] = x[blockIdx.x * 64 + t];
    cluster.sync();
    float sum = 0;
    for (int rank = 0; rank < cluster.num_blocks(); ++rank) sum += cluster.map_shared_rank(s, rank)[63 - t];
    o[blockIdx.x * 64 + t] = sum;
    cluster.sync();
}"""
    x, o = np.arange(512, dtype=np.float32), np.zeros(512, np.float32)
    run(source, "k", (8,), (64,), o, x)
    np.testing.assert_array_equal(
        o.reshape(2, 4, 64), np.repeat(x.reshape(2, 4, 64)[:, :, ::-1].sum(axis=1)[:, None], 4, axis=1)
    )


def test_warps_may_meet_at_the_clusters_barrier_from_two_places() -> None:
    body = "if (t < 32) { s[t] = 1; cluster.sync(); } else { s[t] = 2; cluster.sync(); } o[t] = s[63 - t];"
    _, o, execution = launched(body)
    assert not execution.faults
    np.testing.assert_array_equal(o, np.tile(np.repeat([2, 1], 32), (6, 1)))


@pytest.mark.parametrize(
    ("cluster", "grid", "said"),
    [
        ("32", (32,), r"clusters of \(32, 1, 1\) blocks, expected 1 to 16"),
        ("1, 1, 2", (1024, 1024, 2), "let 134217728 threads run"),
    ],
)
def test_clusters_that_no_gpu_has_or_that_take_too_many_blocks(cluster: str, grid: tuple[int, ...], said: str) -> None:
    loaded = program(HEAD.replace("CLUSTER", cluster).replace("BODY", ""))
    with pytest.raises(UsageError, match=said):
        ptx.execute(loaded, "k", grid, (64,), (np.zeros(64, np.int32), np.zeros(64, np.int32)))
