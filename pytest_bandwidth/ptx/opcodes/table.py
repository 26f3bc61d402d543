"""The opcodes that are modelled, written as the PTX ISA writes them. Rows of computation give a function; the others
name
the action that the decoder takes. Whatever fits no row is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pytest_bandwidth.ptx.opcodes import bits, conversions, eighths, floats, halves, integers, logic
from pytest_bandwidth.ptx.opcodes.forms import Choice, Form, Meaning, Table


def same(function: Meaning) -> Callable[[Choice], Meaning]:
    """A row whose modifiers change nothing but the type."""
    return lambda _: function


def carry(meaning: Callable[[Choice], Meaning]) -> Callable[[Choice], Meaning]:
    """A row that also takes the carry flag."""
    return lambda choice: meaning({**choice, "carry": "in"})


INTEGER_ARITHMETIC = [
    Form("add.itype", "itype <- itype itype", same(np.add)),
    Form("add.sat.s32", "s32 <- s32 s32", same(integers.saturating(np.add))),
    Form("sub.itype", "itype <- itype itype", same(np.subtract)),
    Form("sub.sat.s32", "s32 <- s32 s32", same(integers.saturating(np.subtract))),
    Form("add.cc.i3264", "i3264 cc <- i3264 i3264", integers.add_with_carry),
    Form("addc.cc.i3264", "i3264 cc <- i3264 i3264 cc", carry(integers.add_with_carry)),
    Form("addc.i3264", "i3264 <- i3264 i3264 cc", carry(integers.add_with_carry)),
    Form("sub.cc.i3264", "i3264 cc <- i3264 i3264", integers.subtract_with_borrow),
    Form("subc.cc.i3264", "i3264 cc <- i3264 i3264 cc", carry(integers.subtract_with_borrow)),
    Form("subc.i3264", "i3264 <- i3264 i3264 cc", carry(integers.subtract_with_borrow)),
    Form("mad.lohi.cc.i3264", "i3264 cc <- i3264 i3264 i3264", integers.multiply_add_with_carry),
    Form("madc.lohi.cc.i3264", "i3264 cc <- i3264 i3264 i3264 cc", carry(integers.multiply_add_with_carry)),
    Form("madc.lohi.i3264", "i3264 <- i3264 i3264 i3264 cc", carry(integers.multiply_add_with_carry)),
    Form("mul.wide.halfwide", "2*halfwide <- halfwide halfwide", same(integers.multiply_wide)),
    Form("mul.lo.itype", "itype <- itype itype", same(np.multiply)),
    Form("mul.hi.itype", "itype <- itype itype", same(integers.multiply_high)),
    Form("mad.wide.halfwide", "2*halfwide <- halfwide halfwide 2*halfwide", integers.multiply_add),
    Form("mad.lohi.itype", "itype <- itype itype itype", integers.multiply_add),
    Form("mul24.lohi.i32", "i32 <- i32 i32", integers.multiply24),
    Form("mad24.lohi.i32", "i32 <- i32 i32 i32", integers.multiply24),
    Form("sad.itype", "itype <- itype itype itype", same(integers.absolute_difference_sum)),
    Form("div.itype", "itype <- itype itype", same(integers.divide)),
    Form("rem.itype", "itype <- itype itype", same(integers.remainder)),
    Form("abs.stype", "stype <- stype", same(np.abs)),
    Form("neg.stype", "stype <- stype", same(np.negative)),
    Form("min.itype", "itype <- itype itype", same(np.minimum)),
    Form("max.itype", "itype <- itype itype", same(np.maximum)),
    Form("min.relu.s32", "s32 <- s32 s32", integers.with_floor(np.minimum)),
    Form("max.relu.s32", "s32 <- s32 s32", integers.with_floor(np.maximum)),
    Form("min.s32.relu", "s32 <- s32 s32", integers.with_floor(np.minimum)),  # as NVRTC writes it
    Form("max.s32.relu", "s32 <- s32 s32", integers.with_floor(np.maximum)),
    Form("add.pairtype", "b32 <- b32 b32", integers.on_pairs(np.add)),
    Form("min.pairtype", "b32 <- b32 b32", integers.on_pairs(np.minimum)),
    Form("max.pairtype", "b32 <- b32 b32", integers.on_pairs(np.maximum)),
    Form("min.relu.s16x2", "b32 <- b32 b32", integers.on_pairs(np.minimum)),
    Form("max.relu.s16x2", "b32 <- b32 b32", integers.on_pairs(np.maximum)),
    Form("min.s16x2.relu", "b32 <- b32 b32", integers.on_pairs(np.minimum)),
    Form("max.s16x2.relu", "b32 <- b32 b32", integers.on_pairs(np.maximum)),
    Form("vabsdiff4.u32.u32.u32[.add]", "u32 <- u32 u32 u32", integers.byte_differences),
    Form("dp2a.lohi.atype.btype4", "atype <- atype btype4 atype", integers.dot_product),
    Form("dp4a.atype.btype4", "atype <- atype btype4 atype", integers.dot_product),
]

BIT_OPERATIONS = [
    Form("and.bptype", "bptype <- bptype bptype", same(np.bitwise_and)),
    Form("or.bptype", "bptype <- bptype bptype", same(np.bitwise_or)),
    Form("xor.bptype", "bptype <- bptype bptype", same(np.bitwise_xor)),
    Form("not.bptype", "bptype <- bptype", same(np.invert)),
    Form("cnot.btype", "btype <- btype", same(bits.conditional_not)),
    Form("lop3.b32", "b32 <- b32 b32 b32 u32", same(bits.logic3)),
    Form("shl.btype", "btype <- btype u32", same(bits.shift_left)),
    Form("shr.ctype", "ctype <- ctype u32", same(bits.shift_right)),
    Form("shf.leftright.clampwrap.b32", "b32 <- b32 b32 u32", bits.funnel_shift),
    Form("popc.b3264", "u32 <- b3264", same(bits.population_count)),
    Form("clz.b3264", "u32 <- b3264", same(bits.count_leading_zeros)),
    Form("brev.b3264", "b3264 <- b3264", same(bits.reverse)),
    Form("bfind[.shiftamt].i3264", "u32 <- i3264", bits.find_leading),
    Form("bfe.i3264", "i3264 <- i3264 u32 u32", same(bits.extract_field)),
    Form("bfi.b3264", "b3264 <- b3264 b3264 u32 u32", same(bits.insert_field)),
    Form("prmt.b32[.pmode]", "b32 <- b32 b32 u32", bits.permute_bytes),
    Form("bmsk.clampwrap.b32", "b32 <- u32 u32", bits.bit_mask),
    Form("szext.clampwrap.i32", "i32 <- i32 u32", bits.sign_extend),
]

FLOAT_ARITHMETIC = [
    Form("add[.rnd][.ftz][.sat].f32", "f32 <- f32 f32", floats.arithmetic("add")),
    Form("sub[.rnd][.ftz][.sat].f32", "f32 <- f32 f32", floats.arithmetic("sub")),
    Form("mul[.rnd][.ftz][.sat].f32", "f32 <- f32 f32", floats.arithmetic("mul")),
    Form("add[.rnd].f64", "f64 <- f64 f64", floats.arithmetic("add")),
    Form("sub[.rnd].f64", "f64 <- f64 f64", floats.arithmetic("sub")),
    Form("mul[.rnd].f64", "f64 <- f64 f64", floats.arithmetic("mul")),
    Form("fma.rnd[.ftz][.sat].f32", "f32 <- f32 f32 f32", floats.fused),
    Form("fma.rnd.f64", "f64 <- f64 f64 f64", floats.fused),
    Form("mad.rnd[.ftz][.sat].f32", "f32 <- f32 f32 f32", floats.fused),
    Form("mad.rnd.f64", "f64 <- f64 f64 f64", floats.fused),
    Form("div.approx[.ftz].f32", "f32 <- f32 f32", floats.arithmetic("div")),
    Form("div.full[.ftz].f32", "f32 <- f32 f32", floats.arithmetic("div")),
    Form("div.rnd[.ftz].f32", "f32 <- f32 f32", floats.arithmetic("div")),
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
    Form("ex2.approx[.ftz].f32", "f32 <- f32", floats.exponential),
    Form("abs[.ftz].f32", "f32 <- f32", floats.absolute),
    Form("abs.f64", "f64 <- f64", floats.absolute),
    Form("neg[.ftz].f32", "f32 <- f32", floats.negative),
    Form("neg.f64", "f64 <- f64", floats.negative),
    Form("min[.ftz][.NaN].xorsign.abs.f32", "f32 <- f32 f32", floats.minmax("min")),
    Form("min[.ftz][.NaN][.abs].f32", "f32 <- f32 f32 f32?", floats.minmax("min")),
    Form("max[.ftz][.NaN].xorsign.abs.f32", "f32 <- f32 f32", floats.minmax("max")),
    Form("max[.ftz][.NaN][.abs].f32", "f32 <- f32 f32 f32?", floats.minmax("max")),
    Form("min.f64", "f64 <- f64 f64", floats.minmax("min")),
    Form("max.f64", "f64 <- f64 f64", floats.minmax("max")),
    Form("copysign.float", "float <- float float", same(floats.copysign)),
    Form("testp.property.f32", "pred <- f32", floats.has_property),
    Form("testp.property.f64", "pred <- f64", floats.has_property),
]

HALF_ARITHMETIC = [
    Form("add[.rn][.ftz][.sat].half", "half <- half half", halves.arithmetic(np.add)),
    Form("sub[.rn][.ftz][.sat].half", "half <- half half", halves.arithmetic(np.subtract)),
    Form("mul[.rn][.ftz][.sat].half", "half <- half half", halves.arithmetic(np.multiply)),
    Form("add[.rn].brain", "brain <- brain brain", halves.arithmetic(np.add)),
    Form("sub[.rn].brain", "brain <- brain brain", halves.arithmetic(np.subtract)),
    Form("mul[.rn].brain", "brain <- brain brain", halves.arithmetic(np.multiply)),
    Form("fma.rn[.ftz][.sat].half", "half <- half half half", halves.fused),
    Form("fma.rn[.ftz].relu.half", "half <- half half half", halves.fused),
    Form("fma.rn[.relu].brain", "brain <- brain brain brain", halves.fused),
    Form("neg[.ftz].half", "half <- half", halves.sign_operation("neg")),
    Form("abs[.ftz].half", "half <- half", halves.sign_operation("abs")),
    Form("neg.brain", "brain <- brain", halves.sign_operation("neg")),
    Form("abs.brain", "brain <- brain", halves.sign_operation("abs")),
    Form("min[.ftz][.NaN].half", "half <- half half", halves.minmax("min")),
    Form("max[.ftz][.NaN].half", "half <- half half", halves.minmax("max")),
    Form("min[.ftz][.NaN].xorsign.abs.half", "half <- half half", halves.minmax("min")),
    Form("max[.ftz][.NaN].xorsign.abs.half", "half <- half half", halves.minmax("max")),
    Form("min[.NaN].brain", "brain <- brain brain", halves.minmax("min")),
    Form("max[.NaN].brain", "brain <- brain brain", halves.minmax("max")),
    Form("min[.NaN].xorsign.abs.brain", "brain <- brain brain", halves.minmax("min")),
    Form("max[.NaN].xorsign.abs.brain", "brain <- brain brain", halves.minmax("max")),
    Form("ex2.approx.half", "half <- half", halves.arithmetic(np.exp2)),
    Form("ex2.approx.ftz.brain", "brain <- brain", halves.arithmetic(np.exp2)),
    Form("tanh.approx.half", "half <- half", halves.arithmetic(np.tanh)),
    Form("tanh.approx.brain", "brain <- brain", halves.arithmetic(np.tanh)),
]

COMPARISONS = [
    Form("setp.cmp.itype", "pred pred? <- itype itype", logic.setp(integers.compare)),
    Form("setp.same.btype", "pred pred? <- btype btype", logic.setp(integers.compare)),
    Form("setp.ucmp.utype", "pred pred? <- utype utype", logic.setp(integers.compare)),
    Form("setp.cmp.bool.itype", "pred pred? <- itype itype pred", logic.setp(integers.compare)),
    Form("setp.same.bool.btype", "pred pred? <- btype btype pred", logic.setp(integers.compare)),
    Form("setp.ucmp.bool.utype", "pred pred? <- utype utype pred", logic.setp(integers.compare)),
    Form("setp.fcmp[.ftz].float", "pred pred? <- float float", logic.setp(floats.compare)),
    Form("setp.fcmp.bool[.ftz].float", "pred pred? <- float float pred", logic.setp(floats.compare)),
    Form("setp.fcmp[.ftz].f16", "pred pred? <- f16 f16", logic.setp(halves.compare)),
    Form("setp.fcmp.bool[.ftz].f16", "pred pred? <- f16 f16 pred", logic.setp(halves.compare)),
    Form("setp.fcmp.bf16", "pred pred? <- bf16 bf16", logic.setp(halves.compare)),
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
    Form("set.cmp.settype.itype", "settype <- itype itype", logic.set_word(integers.compare)),
    Form("set.same.settype.btype", "settype <- btype btype", logic.set_word(integers.compare)),
    Form("set.ucmp.settype.utype", "settype <- utype utype", logic.set_word(integers.compare)),
    Form("set.fcmp[.ftz].settype.float", "settype <- float float", logic.set_word(floats.compare)),
    Form("selp.xtype", "xtype <- xtype xtype pred", same(logic.select)),
    Form("slct.xtype.s32", "xtype <- xtype xtype s32", logic.select_by_sign),
    Form("slct[.ftz].xtype.f32", "xtype <- xtype xtype f32", logic.select_by_sign),
]

CONVERSIONS = [
    Form("cvt[.irnd][.rnd][.ftz][.sat].dst.src", "dst <- src", conversions.convert),
    Form("cvt.nearzero.relu.dst16.f32", "dst16 <- f32", conversions.convert_half),
    Form("cvt.nearzero[.relu].packed.f32", "packed <- f32 f32", conversions.convert_pair),
    Form("cvt.rn[.relu].f16x2.eighths", "f16x2 <- b16", eighths.to_halves),
    Form("cvt.rn.satfinite[.relu].eighths.f16x2", "b16 <- f16x2", eighths.from_halves),
    Form("cvt.rn.satfinite[.relu].eighths.f32", "b16 <- f32 f32", eighths.from_singles),
    Form("cvt.rna.tf32.f32", "b32 <- f32", lambda _: conversions.convert({"dst": "tf32", "src": "f32"})),
]

# What the decoder or the executor does itself.
ACTIONS = [
    Form("mov.mtype", "mtype <- mtype", "move"),
    Form("cvta[.to].holding.u64", "u64 <- u64", "convert address"),
    Form("isspacep.window", "pred <- u64", "address is in space"),
    Form("ld[.lorder][.scope][.space][.lcop][.nc][.evict][.evict2][.prefetch][.vec].memory", "memory <-", "load"),
    Form("ldu.global[.vec].memory", "memory <-", "load"),
    Form("st[.sorder][.scope][.stspace][.scop][.evict][.evict2][.vec].memory", "<- memory", "store"),
    Form("atom[.order][.scope][.aspace].atop[.noftz][.vec].attype", "attype <- attype attype?", "atomic"),
    Form("atom.aspace.scope.atop[.noftz].attype", "attype <- attype attype?", "atomic"),  # as NVRTC writes it
    Form("red[.rorder][.scope][.aspace].redatop[.noftz][.vec].redtype", "<- redtype", "reduction"),
    Form("red.aspace.scope.redatop[.noftz].redtype", "<- redtype", "reduction"),
    Form("bra[.uni]", "", "branch"),
    Form("brx.idx[.uni]", "", "branch by index"),
    Form("call[.uni]", "", "call"),
    Form("ret[.uni]", "", "return"),
    Form("exit", "", "exit"),
    Form("trap", "", "trap"),
    Form("bar.sync", "<- u32", "block barrier"),
    Form("bar.cta.sync", "<- u32", "block barrier"),
    Form("barrier[.cta].sync[.aligned]", "<- u32", "block barrier"),
    Form("bar[.cta].red.popc.u32", "u32 <- u32 pred", "counting barrier"),
    Form("bar[.cta].red.barred.pred", "pred <- u32 pred", "voting barrier"),
    Form("barrier[.cta].red.popc[.aligned].u32", "u32 <- u32 pred", "counting barrier"),
    Form("barrier[.cta].red.barred[.aligned].pred", "pred <- u32 pred", "voting barrier"),
    Form("bar.warp.sync", "<- b32", "warp barrier"),
    Form("membar.level", "", "fence"),
    Form("fence[.forder].scope", "", "fence"),
    Form("shfl.sync.shmode.b32", "b32 pred? <- b32 b32 b32 b32", "shuffle"),
    Form("vote.sync.votemode.pred", "pred <- pred b32", "vote"),
    Form("vote.sync.ballot.b32", "b32 <- pred b32", "ballot"),
    Form("match.any.sync.b3264", "b32 <- b3264 b32", "match"),
    Form("match.all.sync.b3264", "b32 pred? <- b3264 b32", "match all"),
    Form("redux.sync.redop.i32", "i32 <- i32 b32", "warp reduction"),
    Form("redux.sync.bitop.b32", "b32 <- b32 b32", "warp reduction"),
    Form("activemask.b32", "b32 <-", "active mask"),
    Form("nanosleep.u32", "<- u32", "nothing"),
    Form("prefetch[.cached].cache", "", "nothing"),
    Form("prefetchu.L1", "", "nothing"),
    Form("discard[.global].L2", "", "nothing"),
    Form("pmevent", "", "nothing"),
]

TABLE = Table(
    [*INTEGER_ARITHMETIC, *BIT_OPERATIONS, *FLOAT_ARITHMETIC, *HALF_ARITHMETIC, *COMPARISONS, *CONVERSIONS, *ACTIONS]
)
