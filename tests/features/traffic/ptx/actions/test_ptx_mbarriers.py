"""Opcodes of mbarriers and clusters, each spelling of the table's rows, in kernels whose results say what they did."""

from __future__ import annotations

import numpy as np
import pytest
from opcode_lab import run_body, some_spellings, without_faults

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.features.traffic.ptx.opcodes.table import TABLE

BODY = """ .shared .align 8 .b64 bar;
 .reg .b64 %s, %to, %b;
 .reg .u32 %a, %v;
 .reg .pred %q, %first;
 setp.eq.u32 %first, %t, 0;
 mov.u64 %b, bar;
 mad.wide.u32 %to, %t, 4, %p0;
"""
STORE = " st.global.u32 [%to], %a;\n"


def spelled(*starts: str) -> list[str]:
    return [opcode for form in TABLE.forms if form.syntax.startswith(starts) for opcode in some_spellings(form)]


def results(body: str, threads: int = 32) -> list[int]:
    out = np.zeros(threads, np.uint32)
    without_faults(run_body(BODY + body + STORE, (out,), threads))
    return out.tolist()


def init(count: int, opcode: str = "mbarrier.init.shared.b64") -> str:
    return f"@%first {opcode} [bar], {count};\n bar.sync 0;\n"


def ended(opcode: str = "mbarrier.test_wait.shared.b64", value: str = "%s", at: str = "[bar]") -> str:
    return f" {opcode} %q, {at}, {value};\n selp.u32 %a, 1, 0, %q;\n"


def place(opcode: str) -> tuple[str, str]:
    """Return the address that an opcode takes, and what computes it."""
    return ("[bar]", "") if "shared" in opcode else ("[%b]", " cvta.shared.u64 %b, %b;\n")


ARRIVE = " mbarrier.arrive.shared.b64 %s, [bar];\n"
WAIT = "again:\n mbarrier.try_wait.parity.shared.b64 %q, [bar], 0;\n@!%q bra again;\n"


@pytest.mark.parametrize("opcode", spelled("mbarrier.arrival"))
def test_the_last_of_the_arrivals_ends_a_phase(opcode: str) -> None:
    """With .noComplete another one has to come; a transaction of no bytes changes nothing."""
    given = ", 0" if "expect_tx" in opcode else ", 1" if "noComplete" in opcode else ""
    at, generic = place(opcode)
    for missing in (0, 1):
        body = generic + init(32 + missing) + f" {opcode} %s, {at}{given};\n"
        assert results(body + ended()) == [1 - missing] * 32


@pytest.mark.parametrize("opcode", spelled("mbarrier.in"))
def test_objects_are_made_anew(opcode: str) -> None:
    at, generic = place(opcode)
    again = f"@%first {opcode} {at}{', 64' if 'init' in opcode else ''};\n bar.sync 0;\n"
    body = generic + init(32) + ARRIVE + " bar.sync 0;\n" + again + (init(64) if "inval" in opcode else "") + ARRIVE
    assert results(body + " mbarrier.pending_count.b64 %a, %s;\n") == list(range(64, 32, -1))


@pytest.mark.parametrize("opcode", spelled("mbarrier.waiting"))
@pytest.mark.parametrize("hint", ["", ", 1000"])
def test_a_wait_tells_whether_the_phase_has_ended(opcode: str, hint: str) -> None:
    if hint and "try_wait" not in opcode:
        return
    parity = "parity" in opcode
    at, generic = place(opcode)
    waits = ended(opcode, ("0" if parity else "%s") + hint, at)
    assert results(generic + init(32) + ARRIVE + waits) == [1] * 32
    assert results(generic + init(33) + ARRIVE + waits) == [0] * 32
    if parity:  # of the phase before
        assert results(generic + init(33) + ARRIVE + waits.replace(", 0", ", 1", 1)) == [1] * 32


@pytest.mark.parametrize("opcode", spelled("mbarrier.expect_tx", "mbarrier.complete_tx"))
def test_a_phase_waits_for_bytes(opcode: str) -> None:
    at, generic = place(opcode)
    expects = "expect_tx" in opcode
    other = f"mbarrier.{'complete' if expects else 'expect'}_tx.shared.b64 [bar]"
    for nbytes, whole in ((48, 1), (47, 0)):
        body = generic + init(32) + f"@%first {opcode} {at}, 48;\n@%first {other}, {nbytes};\n" + ARRIVE
        assert results(body + ended()) == [whole] * 32


def test_who_drops_out_is_not_expected_again() -> None:
    odd = " and.b32 %v, %t, 1;\n setp.eq.u32 %first, %v, 0;\n"
    both = "@%first mbarrier.arrive.shared.b64 %s, [bar];\n@!%first mbarrier.arrive_drop.shared.b64 %s, [bar];\n"
    again = "@%first mbarrier.arrive.shared.b64 %s, [bar];\n"
    assert results(init(32) + odd + both + again + ended())[::2] == [1] * 16


@pytest.mark.parametrize("opcode", spelled("cp.async.mbarrier"))
def test_copies_end_with_the_phase_that_they_join(opcode: str) -> None:
    at, generic = place(opcode)
    out, source = np.zeros(64, np.uint32), np.arange(64, dtype=np.uint32)
    body = BODY + generic + " .shared .align 16 .b32 box[64];\n .reg .u64 %from;\n .reg .u32 %at;\n"
    body += " mad.wide.u32 %from, %t, 4, %p1;\n shl.b32 %at, %t, 2;\n" + init(64)
    body += " mov.u32 %v, box;\n add.u32 %at, %at, %v;\n cp.async.ca.shared.global [%at], [%from], 4;\n"
    body += f" {opcode} {at};\n" + ("" if "noinc" in opcode else ARRIVE)
    read = " sub.u32 %at, %v, %at;\n add.u32 %at, %at, %v;\n ld.shared.u32 %a, [%at + 252];\n"
    without_faults(run_body(body + WAIT + read + STORE, (out, source), 64))
    np.testing.assert_array_equal(out, source[::-1])
    faults = run_body(body + read + STORE, (out, source), 64).faults
    assert "early" in {fault.code for fault in faults}


BULK = """ .shared .align 16 .b32 box[32];
 .reg .u32 %at;
 shl.b32 %at, %t, 2;
 mov.u32 %v, box;
 add.u32 %at, %at, %v;
"""


@pytest.mark.parametrize("opcode", spelled("cp.async.bulk.bulkto", "cp.async.bulk.global"))
def test_bulk_copies_move_bytes(opcode: str) -> None:
    hint = ", 0" if "cache_hint" in opcode else ""
    out, source = np.zeros(32, np.uint32), np.arange(32, dtype=np.uint32)
    if "bulk_group" in opcode:
        body = f" st.shared.u32 [%at], %t;\n bar.sync 0;\n@%first {opcode} [%p0], [box], 128{hint};\n"
        body += " cp.async.bulk.commit_group;\n cp.async.bulk.wait_group.read 0;\n cp.async.bulk.wait_group 0;\n"
    else:
        body = (
            init(1)
            + f"@%first mbarrier.arrive.expect_tx.shared.b64 _, [bar], 128;\n@%first {opcode} [box], [%p1], 128, "
        )
        body += f"[bar]{hint};\n{WAIT} ld.shared.u32 %a, [%at];\n{STORE}"
    without_faults(run_body(BODY + BULK + body, (out, source), 32))
    np.testing.assert_array_equal(out, source)


def test_too_many_arrivals_are_a_fault() -> None:
    body = BODY + init(16) + "@!%first mbarrier.arrive.shared.b64 %s, [bar], 17;\n"
    assert {fault.code for fault in run_body(body, (np.zeros(32, np.uint32),), 32).faults} == {"barrier"}


def test_arrivals_before_init_are_a_fault() -> None:
    body = BODY + " mbarrier.arrive.shared.b64 %s, [bar];\n"
    assert "uninitialised" in {fault.code for fault in run_body(body, (np.zeros(32, np.uint32),), 32).faults}


def test_a_wait_without_an_end_is_said_at_once() -> None:
    body = BODY + init(40) + " mbarrier.arrive.expect_tx.shared.b64 %s, [bar], 2;\n"
    body += "again:\n mbarrier.try_wait.shared.b64 %q, [bar], %s;\n@!%q bra again;\n"
    with pytest.raises(UsageError, match=r"waits forever at PTX line \d+: .* lacks 8 arrivals and 64 bytes"):
        run_body(body, (np.zeros(32, np.uint32),), 32)


def test_mbarriers_in_global_memory_are_a_fault() -> None:
    faults = run_body(BODY + "@%first mbarrier.init.b64 [%p0], 1;\n", (np.zeros(32, np.uint32),), 32).faults
    assert [fault.code for fault in faults] == ["out-of-bounds"]


# ---- clusters: a block that is one of its own ------------------------------------------------------------------------

CLUSTER = """ .shared .align 4 .b32 box[32];
 .reg .b64 %g;
 .reg .u32 %at, %own;
 shl.b32 %own, %t, 2;
 mov.u32 %v, box;
 add.u32 %own, %own, %v;
 st.shared.u32 [%own], %t;
"""


@pytest.mark.parametrize("opcode", spelled("mapa"))
def test_mapa_leads_to_shared_memory_of_a_rank(opcode: str) -> None:
    if opcode.endswith("u32"):
        assert results(CLUSTER + f" {opcode} %at, %own, 0;\n ld.shared::cluster.u32 %a, [%at];\n") == [*range(32)]
        return
    generic = f" cvt.u64.u32 %g, %own;\n cvta.shared::cluster.u64 %g, %g;\n {opcode} %g, %g, 0;\n"
    assert results(CLUSTER + generic + " ld.u32 %a, [%g];\n") == [*range(32)]
    to_shared = " cvta.to.shared::cluster.u64 %g, %g;\n ld.shared::cluster.u32 %a, [%g];\n"
    assert results(CLUSTER + generic + to_shared) == [*range(32)]


@pytest.mark.parametrize("opcode", spelled("barrier.cluster.wait"))
@pytest.mark.parametrize("arrive", spelled("barrier.cluster.arrive"))
def test_the_clusters_barrier_orders(arrive: str, opcode: str) -> None:
    read = " sub.u32 %at, %v, %own;\n add.u32 %at, %at, %v;\n ld.shared.u32 %a, [%at + 124];\n"
    assert results(CLUSTER + f" {arrive};\n {opcode};\n{read}") == [*range(31, -1, -1)]


def test_accesses_reach_shared_memory_of_the_cluster() -> None:
    map_it = " mapa.shared::cluster.u32 %at, %own, 0;\n"
    read = " ld.shared.u32 %a, [%own];\n"
    assert results(CLUSTER + map_it + " st.shared::cluster.u32 [%at], 7;\n" + read) == [7] * 32
    assert results(CLUSTER + map_it + " red.shared::cluster.add.u32 [%at], 7;\n" + read) == [7 + t for t in range(32)]
    assert results(CLUSTER + map_it + " atom.shared::cluster.add.u32 %a, [%at], 7;\n") == [*range(32)]
