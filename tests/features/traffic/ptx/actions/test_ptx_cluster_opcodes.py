"""Opcodes of clusters, each spelling of the table's rows, in a block that is a cluster of its own."""

from __future__ import annotations

import numpy as np
import pytest
from opcode_lab import run_body, some_spellings, without_faults

from pytest_bandwidth.domain.errors import NotOnThisDevice
from pytest_bandwidth.features.traffic.ptx.opcodes.table import TABLE

BODY = """ .shared .align 8 .b32 box[32];
 .reg .b64 %to, %g;
 .reg .u32 %a, %v, %at, %own;
 shl.b32 %own, %t, 2;
 mov.u32 %v, box;
 add.u32 %own, %own, %v;
 mad.wide.u32 %to, %t, 4, %p0;
 st.shared.u32 [%own], %t;
"""
STORE = " st.global.u32 [%to], %a;\n"


def results(body: str) -> list[int]:
    out = np.zeros(32, np.uint32)
    without_faults(run_body(BODY + body + STORE, (out,), 32))
    return out.tolist()


def spelled(start: str) -> list[str]:
    return [opcode for form in TABLE.forms if form.syntax.startswith(start) for opcode in some_spellings(form)]


@pytest.mark.parametrize("opcode", spelled("mapa"))
def test_mapa_leads_to_shared_memory_of_a_rank(opcode: str) -> None:
    if opcode.endswith("u32"):
        assert results(f" {opcode} %at, %own, 0;\n ld.shared::cluster.u32 %a, [%at];\n") == [*range(32)]
        return
    generic = f" cvt.u64.u32 %g, %own;\n cvta.shared::cluster.u64 %g, %g;\n {opcode} %g, %g, 0;\n"
    assert results(generic + " ld.u32 %a, [%g];\n") == [*range(32)]
    to_shared = " cvta.to.shared::cluster.u64 %g, %g;\n ld.shared::cluster.u32 %a, [%g];\n"
    assert results(generic + to_shared) == [*range(32)]


@pytest.mark.parametrize("opcode", spelled("barrier.cluster.wait"))
@pytest.mark.parametrize("arrive", spelled("barrier.cluster.arrive"))
def test_the_clusters_barrier_orders(arrive: str, opcode: str) -> None:
    read = " xor.b32 %at, %own, 124;\n ld.shared.u32 %a, [%at];\n"
    assert results(f" {arrive};\n {opcode};\n{read}") == [*range(31, -1, -1)]


def test_accesses_reach_shared_memory_of_the_cluster() -> None:
    map_it = " mapa.shared::cluster.u32 %at, %own, 0;\n"
    read = " ld.shared.u32 %a, [%own];\n"
    assert results(map_it + " st.shared::cluster.u32 [%at], 7;\n" + read) == [7] * 32
    assert results(map_it + " red.shared::cluster.add.u32 [%at], 7;\n" + read) == [7 + t for t in range(32)]
    assert results(map_it + " atom.shared::cluster.add.u32 %a, [%at], 7;\n") == [*range(32)]


def test_a_barrier_for_some_lanes_is_refused() -> None:
    with pytest.raises(NotOnThisDevice, match=r"barrier\.cluster\.wait"):
        run_body(BODY + " .reg .pred %q;\n setp.eq.u32 %q, %t, 0;\n@%q barrier.cluster.wait;\n", (np.zeros(32),), 32)
