"""List the modelled opcodes in the notation of the PTX ISA.

Rows of computations have a function; other rows have the name of the decoder's action. An opcode that fits no row is
refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pytest_bandwidth.features.traffic.ptx.lanes import Array
from pytest_bandwidth.features.traffic.ptx.loops import pending_arrivals
from pytest_bandwidth.features.traffic.ptx.memory import RANK_AT
from pytest_bandwidth.features.traffic.ptx.opcodes import conversions, floats, halves, integers
from pytest_bandwidth.features.traffic.ptx.opcodes.forms import Choice, Form, Meaning, Table


def same(function: Meaning) -> Callable[[Choice], Meaning]:
    """Return a row whose modifiers change nothing but the type."""
    return lambda _: function


def mapped(address: Array, rank: Array) -> Array:
    """Return the address of the same place in another block's shared memory."""
    return address + ((rank.astype(address.dtype) + address.dtype.type(1)) << address.dtype.type(RANK_AT))


def each(
    names: str, syntax: str, operands: str, meaning: Callable[[Any], Callable[[Choice], Meaning]], of: Any = None
) -> list[Form]:
    """Return a row for each name plus syntax. meaning: maps the name, or its function in `of`, to a row's meaning."""
    return [Form(f"{name}{syntax}", operands, meaning(of[name] if of else name)) for name in names.split()]


SIGNS = {"abs": np.abs, "neg": np.negative}
MINMAX = {"min": np.minimum, "max": np.maximum}
INTEGER_ARITHMETIC = [
    *each("add sub", ".itype", "itype <- itype itype", same, floats.OPERATIONS),
    *each("add sub", ".sat.s32", "s32 <- s32 s32", integers.saturating, floats.OPERATIONS),
    Form("add.cc.i3264", "i3264 cc <- i3264 i3264", same(integers.add_with_carry)),
    Form("addc.cc.i3264", "i3264 cc <- i3264 i3264 cc", same(integers.add_with_carry)),
    Form("addc.i3264", "i3264 <- i3264 i3264 cc", same(integers.add_with_carry)),
    Form("sub.cc.i3264", "i3264 cc <- i3264 i3264", same(integers.subtract_with_borrow)),
    Form("subc.cc.i3264", "i3264 cc <- i3264 i3264 cc", same(integers.subtract_with_borrow)),
    Form("subc.i3264", "i3264 <- i3264 i3264 cc", same(integers.subtract_with_borrow)),
    Form("mad.lohi.cc.i3264", "i3264 cc <- i3264 i3264 i3264", integers.multiply_add_with_carry),
    Form("madc.lohi.cc.i3264", "i3264 cc <- i3264 i3264 i3264 cc", integers.multiply_add_with_carry),
    Form("madc.lohi.i3264", "i3264 <- i3264 i3264 i3264 cc", integers.multiply_add_with_carry),
    Form("mul.wide.halfwide", "2*halfwide <- halfwide halfwide", same(integers.multiply_wide)),
    Form("mul.lo.itype", "itype <- itype itype", same(np.multiply)),
    Form("mul.hi.itype", "itype <- itype itype", same(integers.multiply_high)),
    Form("mad.wide.halfwide", "2*halfwide <- halfwide halfwide 2*halfwide", integers.multiply_add),
    Form("mad.lohi.itype", "itype <- itype itype itype", integers.multiply_add),
    Form("mul24.lohi.i32", "i32 <- i32 i32", integers.multiply24),
    Form("mad24.lohi.i32", "i32 <- i32 i32 i32", integers.multiply24),
    Form("sad.itype", "itype <- itype itype itype", same(lambda a, b, c: c + np.where(a < b, b - a, a - b))),
    Form("div.itype", "itype <- itype itype", same(integers.divide)),
    Form("rem.itype", "itype <- itype itype", same(integers.remainder)),
    *each("abs neg", ".stype", "stype <- stype", same, SIGNS),
    *each("min max", ".itype", "itype <- itype itype", same, MINMAX),
    *each("min max", ".relu.s32", "s32 <- s32 s32", integers.with_floor, MINMAX),
    *each("min max", ".s32.relu", "s32 <- s32 s32", integers.with_floor, MINMAX),  # as NVRTC writes it
    Form("add.pairtype", "b32 <- b32 b32", integers.on_pairs(np.add)),
    *each("min max", ".pairtype", "b32 <- b32 b32", integers.on_pairs, MINMAX),
    *each("min max", ".relu.s16x2", "b32 <- b32 b32", integers.on_pairs, MINMAX),
    *each("min max", ".s16x2.relu", "b32 <- b32 b32", integers.on_pairs, MINMAX),
    Form("vabsdiff4.u32.u32.u32[.add]", "u32 <- u32 u32 u32", integers.byte_differences),
    Form("dp2a.lohi.atype.btype4", "atype <- atype btype4 atype", integers.dot_product),
    Form("dp4a.atype.btype4", "atype <- atype btype4 atype", integers.dot_product),
]

BIT_OPERATIONS = [
    *each("and or xor", ".bptype", "bptype <- bptype bptype", lambda name: same(getattr(np, f"bitwise_{name}"))),
    Form("not.bptype", "bptype <- bptype", same(np.invert)),
    Form("cnot.btype", "btype <- btype", same(lambda a: (a == 0).astype(a.dtype))),
    Form("lop3.b32", "b32 <- b32 b32 b32 u32", same(integers.logic3)),
    Form("shl.btype", "btype <- btype u32", same(integers.shift_left)),
    Form("shr.ctype", "ctype <- ctype u32", same(integers.shift_right)),
    Form("shf.leftright.clampwrap.b32", "b32 <- b32 b32 u32", integers.funnel_shift),
    Form("popc.b3264", "u32 <- b3264", same(integers.population_count)),
    Form("clz.b3264", "u32 <- b3264", same(integers.count_leading_zeros)),
    Form("brev.b3264", "b3264 <- b3264", same(integers.reverse)),
    Form("bfind[.shiftamt].i3264", "u32 <- i3264", integers.find_leading),
    Form("bfe.i3264", "i3264 <- i3264 u32 u32", same(integers.extract_field)),
    Form("bfi.b3264", "b3264 <- b3264 b3264 u32 u32", same(integers.insert_field)),
    Form("prmt.b32[.pmode]", "b32 <- b32 b32 u32", integers.permute_bytes),
    Form("bmsk.clampwrap.b32", "b32 <- u32 u32", integers.bit_mask),
    Form("szext.clampwrap.i32", "i32 <- i32 u32", integers.sign_extend),
]

FLOAT_ARITHMETIC = [
    *each("add sub mul", "[.rnd][.ftz][.sat].f32", "f32 <- f32 f32", floats.arithmetic),
    *each(
        "add sub mul",
        "[.rnd][.ftz].f32x2",
        "f32x2 <- f32x2 f32x2",
        lambda name: floats.on_pairs(floats.arithmetic(name)),
    ),
    Form("fma.rnd[.ftz].f32x2", "f32x2 <- f32x2 f32x2 f32x2", floats.on_pairs(floats.fused)),
    *each("add sub mul", "[.rnd].f64", "f64 <- f64 f64", floats.arithmetic),
    *each("fma mad", ".rnd[.ftz][.sat].f32", "f32 <- f32 f32 f32", lambda _: floats.fused),
    *each("fma mad", ".rnd.f64", "f64 <- f64 f64 f64", lambda _: floats.fused),
    *(Form(f"div.{way}[.ftz].f32", "f32 <- f32 f32", floats.arithmetic("div")) for way in ("approx", "full", "rnd")),
    Form("div.rnd.f64", "f64 <- f64 f64", floats.arithmetic("div")),
    Form("rcp.approx[.ftz].f32", "f32 <- f32", floats.reciprocal),
    Form("rcp.rnd[.ftz].f32", "f32 <- f32", floats.reciprocal),
    Form("rcp.rnd.f64", "f64 <- f64", floats.reciprocal),
    Form("rcp.approx.ftz.f64", "f64 <- f64", floats.approximate_double(lambda a: 1.0 / a)),
    Form("sqrt.approx[.ftz].f32", "f32 <- f32", floats.arithmetic("sqrt")),
    Form("sqrt.rnd[.ftz].f32", "f32 <- f32", floats.arithmetic("sqrt")),
    Form("sqrt.rnd.f64", "f64 <- f64", floats.arithmetic("sqrt")),
    Form("rsqrt.approx[.ftz].f32", "f32 <- f32", floats.reciprocal_root),
    Form("rsqrt.approx.f64", "f64 <- f64", floats.reciprocal_root),
    Form("rsqrt.approx.ftz.f64", "f64 <- f64", floats.approximate_double(lambda a: 1.0 / np.sqrt(a))),
    Form("sin.approx[.ftz].f32", "f32 <- f32", floats.approximate(np.sin)),
    Form("cos.approx[.ftz].f32", "f32 <- f32", floats.approximate(np.cos)),
    Form("tanh.approx.f32", "f32 <- f32", floats.approximate(np.tanh)),
    Form("lg2.approx[.ftz].f32", "f32 <- f32", floats.approximate(np.log2)),
    Form("ex2.approx[.ftz].f32", "f32 <- f32", floats.elementwise(np.exp2)),
    *each("abs neg", "[.ftz].f32", "f32 <- f32", floats.elementwise, SIGNS),
    *each("abs neg", ".f64", "f64 <- f64", floats.elementwise, SIGNS),
    *each("min max", "[.ftz][.NaN].xorsign.abs.f32", "f32 <- f32 f32", floats.minmax),
    *each("min max", "[.ftz][.NaN][.abs].f32", "f32 <- f32 f32 f32?", floats.minmax),
    *each("min max", ".f64", "f64 <- f64 f64", floats.minmax),
    Form("copysign.float", "float <- float float", same(lambda a, b: np.copysign(b, a))),
    Form("testp.property.float", "pred <- float", floats.has_property),
]

HALF_ARITHMETIC = [
    *each("add sub mul", "[.rn][.ftz][.sat].half", "half <- half half", halves.arithmetic, floats.OPERATIONS),
    *each("add sub mul", "[.rn].brain", "brain <- brain brain", halves.arithmetic, floats.OPERATIONS),
    Form("fma.rn[.ftz][.sat].half", "half <- half half half", halves.fused),
    Form("fma.rn[.ftz].relu.half", "half <- half half half", halves.fused),
    Form("fma.rn[.relu].brain", "brain <- brain brain brain", halves.fused),
    *each("neg abs", "[.ftz].half", "half <- half", halves.sign_operation),
    *each("neg abs", ".brain", "brain <- brain", halves.sign_operation),
    *each("min max", "[.ftz][.NaN].half", "half <- half half", halves.minmax),
    *each("min max", "[.ftz][.NaN].xorsign.abs.half", "half <- half half", halves.minmax),
    *each("min max", "[.NaN].brain", "brain <- brain brain", halves.minmax),
    *each("min max", "[.NaN].xorsign.abs.brain", "brain <- brain brain", halves.minmax),
    Form("ex2.approx.half", "half <- half", halves.arithmetic(np.exp2)),
    Form("ex2.approx.ftz.brain", "brain <- brain", halves.arithmetic(np.exp2)),
    Form("tanh.approx.half", "half <- half", halves.arithmetic(np.tanh)),
    Form("tanh.approx.brain", "brain <- brain", halves.arithmetic(np.tanh)),
]

COMPARISONS = [
    Form("setp.cmp.itype", "pred pred? <- itype itype", integers.setp(integers.compare)),
    Form("setp.same.btype", "pred pred? <- btype btype", integers.setp(integers.compare)),
    Form("setp.ucmp.utype", "pred pred? <- utype utype", integers.setp(integers.compare)),
    Form("setp.cmp.bool.itype", "pred pred? <- itype itype pred", integers.setp(integers.compare)),
    Form("setp.same.bool.btype", "pred pred? <- btype btype pred", integers.setp(integers.compare)),
    Form("setp.ucmp.bool.utype", "pred pred? <- utype utype pred", integers.setp(integers.compare)),
    Form("setp.fcmp[.ftz].float", "pred pred? <- float float", integers.setp(floats.compare)),
    Form("setp.fcmp.bool[.ftz].float", "pred pred? <- float float pred", integers.setp(floats.compare)),
    Form("setp.fcmp[.ftz].f16", "pred pred? <- f16 f16", integers.setp(halves.compare)),
    Form("setp.fcmp.bool[.ftz].f16", "pred pred? <- f16 f16 pred", integers.setp(halves.compare)),
    Form("setp.fcmp.bf16", "pred pred? <- bf16 bf16", integers.setp(halves.compare)),
    Form("setp.fcmp[.ftz].f16x2", "pred pred <- f16x2 f16x2", halves.compare),
    Form("setp.fcmp.bf16x2", "pred pred <- bf16x2 bf16x2", halves.compare),
    Form("set.fcmp[.ftz].f16.f16", "f16 <- f16 f16", halves.set_halves),
    Form("set.fcmp[.ftz].f16x2.f16x2", "f16x2 <- f16x2 f16x2", halves.set_halves),
    Form("set.fcmp[.ftz].word.f16", "word <- f16 f16", halves.set_halves),
    Form("set.fcmp[.ftz].i32.f16x2", "i32 <- f16x2 f16x2", halves.set_halves),
    Form("set.fcmp.bf16.bf16", "bf16 <- bf16 bf16", halves.set_halves),
    Form("set.fcmp.bf16x2.bf16x2", "bf16x2 <- bf16x2 bf16x2", halves.set_halves),
    Form("set.fcmp.word.bf16", "word <- bf16 bf16", halves.set_halves),
    Form("set.fcmp.i32.bf16x2", "i32 <- bf16x2 bf16x2", halves.set_halves),
    Form("set.cmp.settype.itype", "settype <- itype itype", integers.set_word(integers.compare)),
    Form("set.same.settype.btype", "settype <- btype btype", integers.set_word(integers.compare)),
    Form("set.ucmp.settype.utype", "settype <- utype utype", integers.set_word(integers.compare)),
    Form("set.fcmp[.ftz].settype.float", "settype <- float float", integers.set_word(floats.compare)),
    Form("selp.xtype", "xtype <- xtype xtype pred", same(lambda a, b, chosen: np.where(chosen, a, b))),
    Form("slct.xtype.s32", "xtype <- xtype xtype s32", integers.select_by_sign),
    Form("slct[.ftz].xtype.f32", "xtype <- xtype xtype f32", integers.select_by_sign),
]

CONVERSIONS = [
    Form("cvt[.irnd][.rnd][.ftz][.sat].dst.src", "dst <- src", conversions.convert),
    Form("cvt.nearzero.relu.dst16.f32", "dst16 <- f32", conversions.convert_half),
    Form("cvt.nearzero[.relu].packed.f32", "packed <- f32 f32", conversions.convert_pair),
    Form("cvt.rn[.relu].f16x2.small", "f16x2 <- b16", conversions.small_to_halves),
    Form(
        "cvt.rn.satfinite[.relu].small.f16x2",
        "b16 <- f16x2",
        conversions.from_halves("f16x2", conversions.small_from_singles),
    ),
    Form("cvt.rn.satfinite[.relu].small.f32", "b16 <- f32 f32", conversions.small_from_singles),
    Form("cvt.rn[.relu].f16x2.e2m1x2", "f16x2 <- b8", conversions.small_to_halves),
    Form(
        "cvt.rn.satfinite[.relu].e2m1x2.f16x2",
        "b8 <- f16x2",
        conversions.from_halves("f16x2", conversions.small_from_singles),
    ),
    Form("cvt.rn.satfinite[.relu].e2m1x2.f32", "b8 <- f32 f32", conversions.small_from_singles),
    Form("cvt.outward[.satfinite].ue8m0x2.f32", "b16 <- f32 f32", conversions.scale_from_singles),
    Form(
        "cvt.outward[.satfinite].ue8m0x2.bf16x2",
        "b16 <- bf16x2",
        conversions.from_halves("bf16x2", conversions.scale_from_singles),
    ),
    Form("cvt.rn.bf16x2.ue8m0x2", "bf16x2 <- b16", same(conversions.scale_to_halves)),
    Form("cvt.rna.tf32.f32", "b32 <- f32", same(conversions.to_tf32)),
]

# Opcodes that the decoder or the interpreter executes itself.
ACTIONS = [
    Form("mov.mtype", "mtype <- mtype", "move"),
    Form("cvta[.to].holding.u64", "u64 <- u64", "convert address"),
    Form("isspacep.window", "pred <- u64", "address is in space"),
    Form(
        "ld[.lorder][.scope][.space][.lcop][.nc][.evict][.evict2][.L2::cache_hint][.prefetch][.vec].memory",
        "memory <-",
        "load",
    ),
    Form("ldu.global[.vec].memory", "memory <-", "load"),
    Form("st[.sorder][.scope][.stspace][.scop][.evict][.evict2][.L2::cache_hint][.vec].memory", "<- memory", "store"),
    Form(
        "atom[.order][.scope][.aspace].atop[.noftz][.L2::cache_hint][.vec].attype", "attype <- attype attype?", "atomic"
    ),
    Form("red[.rorder][.scope][.aspace].redatop[.noftz][.L2::cache_hint][.vec].redtype", "<- redtype", "reduction"),
    Form("bra[.uni]", "", "branch"),
    Form("brx.idx[.uni]", "", "branch by index"),
    Form("call[.uni]", "", "call"),
    Form("ret[.uni]", "", "return"),
    Form("exit", "", "exit"),
    Form("trap", "", "trap"),
    Form("bar[.cta].sync", "<- u32", "block barrier"),
    Form("barrier[.cta].sync[.aligned]", "<- u32", "block barrier"),
    Form("bar[.cta].red.popc.u32", "u32 <- u32 pred", "counting barrier"),
    Form("bar[.cta].red.barred.pred", "pred <- u32 pred", "voting barrier"),
    Form("barrier[.cta].red.popc[.aligned].u32", "u32 <- u32 pred", "counting barrier"),
    Form("barrier[.cta].red.barred[.aligned].pred", "pred <- u32 pred", "voting barrier"),
    Form("bar[.cta].arrive", "", "arrival"),
    Form("barrier[.cta].arrive[.aligned]", "", "arrival"),
    Form("barrier.cluster.wait[.acquire][.aligned]", "", "cluster barrier"),
    Form("mapa[.shared::cluster].u32", "u32 <- u32 u32", same(mapped)),
    Form("mapa.u64", "u64 <- u64 u32", same(mapped)),
    Form("bar.warp.sync", "<- b32", "warp barrier"),
    Form("membar.level", "", "fence"),
    Form("fence[.forder].scope", "", "fence"),
    Form("shfl.sync.shmode.b32", "b32 pred? <- b32 b32 b32 b32", "shuffle"),
    Form("vote.sync.votemode.pred", "pred <- pred b32", "vote"),
    Form("vote.sync.ballot.b32", "b32 <- pred b32", "ballot"),
    Form("vote.ballot.sync.b32", "b32 <- pred b32", "ballot"),  # in inline assembler of libraries
    Form("vote.votemode.sync.pred", "pred <- pred b32", "vote"),
    Form("match.any.sync.b3264", "b32 <- b3264 b32", "match"),
    Form("match.all.sync.b3264", "b32 pred? <- b3264 b32", "match all"),
    Form("redux.sync.redop.i32", "i32 <- i32 b32", "warp reduction"),
    Form("redux.sync.bitop.b32", "b32 <- b32 b32", "warp reduction"),
    Form("activemask.b32", "b32 <-", "active mask"),
    Form("elect.sync", "b32 pred <- b32", "elect"),
    Form("createpolicy.fractional.evict2[.evict3].b64", "b64 <-", "policy"),
    Form("createpolicy.range[.global].evict2[.evict3].b64", "b64 <-", "policy"),
    Form("createpolicy.cvt.L2.b64", "b64 <-", "policy"),
    Form("cp.async.cpcache.shmem.global[.L2::cache_hint][.prefetch]", "", "asynchronous copy"),
    Form("cp.async.commit_group", "", "copies committed"),
    Form("cp.async.wait_group", "", "copies awaited"),
    Form("cp.async.wait_all", "", "copies awaited"),
    Form("cp.async.bulk.bulkto.global.mbarrier::complete_tx::bytes[.L2::cache_hint]", "", "bulk copy"),
    Form("cp.async.bulk.global.shared::cta.bulk_group[.L2::cache_hint]", "", "bulk copy"),
    Form("cp.async.bulk.commit_group", "", "copies committed"),
    Form("cp.async.bulk.wait_group[.read]", "", "copies awaited"),
    Form("cp.async.mbarrier.arrive[.noinc][.shmem].b64", "", "copies join an mbarrier"),
    Form("mbarrier.init[.shmem].b64", "<- u32", "mbarrier"),
    Form("mbarrier.inval[.shmem].b64", "", "mbarrier"),
    Form("mbarrier.arrival[.asem][.near][.mspace].b64", "b64 <- u32?", "mbarrier"),
    Form("mbarrier.arrival.noComplete[.release][.cta][.shmem].b64", "b64 <- u32", "mbarrier"),
    Form("mbarrier.arrival.expect_tx[.asem][.near][.mspace].b64", "b64 <- u32", "mbarrier"),
    Form("mbarrier.expect_tx[.relaxed][.near][.mspace].b64", "<- u32", "mbarrier"),
    Form("mbarrier.complete_tx[.relaxed][.near][.mspace].b64", "<- u32", "mbarrier"),
    Form("mbarrier.waiting[.wsem][.near][.shmem].b64", "pred <- b64 u32?", "wait for an mbarrier"),
    Form("mbarrier.waiting.parity[.wsem][.near][.shmem].b64", "pred <- u32 u32?", "wait for an mbarrier"),
    Form("mbarrier.pending_count.b64", "u32 <- b64", same(pending_arrivals)),
    Form("ldmatrix.sync.aligned.m8n8.matrices[.trans].shmem.b16", "b32 <-", "matrix load"),
    Form("stmatrix.sync.aligned.m8n8.matrices[.trans].shmem.b16", "<- b32", "matrix store"),
    Form("wmma.load.operand.sync.aligned.rowcol.wshape[.wspace].wtype", "", "load of a matrix"),
    Form("wmma.store.d.sync.aligned.rowcol.wshape[.wspace].wresult", "", "store of a matrix"),
    Form("wmma.mma.sync.aligned.rowcol.rowcol2.hshape.hresult.haccumulated", "", "product of matrices"),
    Form(
        "wmma.mma.sync.aligned.rowcol.rowcol2.wshape.tresult.tleft.tright.taccumulated[.satfinite]",
        "",
        "product of matrices",
    ),
    Form("wgmma.mma_async.sync.aligned.gshape.mresult.mleft.mright", "", "product of a warp group"),
    Form("mma.sync.aligned.mshape.row.col[.satfinite].mresult.mleft.mright.maccumulated", "", "matrix product"),
    Form("setmaxnreg.more.sync.aligned.u32", "<- u32", "nothing"),
    Form("nanosleep.u32", "<- u32", "nothing"),
]

# Hints whose effect is not modelled, and waits for operations that are done at once here.
WITHOUT_EFFECT = (
    *("barrier.cluster.arrive[.rorder][.aligned]", "cp.async.bulk.ahead.L2.global[.L2::cache_hint]"),
    *("fence.mbarrier_init.release.cluster", "fence.proxy.async[.proxied]", "wgmma.fence.sync.aligned"),
    *("wgmma.commit_group.sync.aligned", "wgmma.wait_group.sync.aligned", "applypriority[.global].L2::evict_normal"),
    *("prefetch[.global].evict2", "prefetch[.cached].cache", "prefetchu.L1", "discard[.global].L2", "pmevent"),
    "griddepcontrol.dependent",
)
ACTIONS += [Form(syntax, "", "nothing") for syntax in WITHOUT_EFFECT]

TABLE = Table(
    [*INTEGER_ARITHMETIC, *BIT_OPERATIONS, *FLOAT_ARITHMETIC, *HALF_ARITHMETIC, *COMPARISONS, *CONVERSIONS, *ACTIONS]
)
