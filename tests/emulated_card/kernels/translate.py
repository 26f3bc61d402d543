"""Write a decoded kernel as C: a function that runs one warp, whose basic blocks are labels, and a `struct kernel`."""

from __future__ import annotations

from collections.abc import Iterator

from emulated_card.kernels.lanes import BlockWriter, is_call
from emulated_card.kernels.registers import Registers, match_of, not_translated, results_of, stored
from emulated_card.kernels.rules import expressions_of
from emulated_card.kernels.steps import write_call
from pytest_bandwidth.features.traffic.ptx.program import (
    Barrier,
    BasicBlock,
    Branch,
    Compute,
    Exit,
    Kernel,
    Step,
)

# Jumps backwards after which a warp lets others run, that it may be waiting for.
TURNS = 1 << 17


def translate(kernel: Kernel) -> str:
    """Return the C text of a kernel. Raises NotSupported for opcodes without a rule."""
    return "\n".join(_Translator(kernel).text()) + "\n"


class _Translator:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._registers = Registers.of(kernel)
        self._barriers = [n for n, block in enumerate(kernel.blocks) if isinstance(block.end, Barrier)]

    def text(self) -> Iterator[str]:
        kernel = self._kernel
        code = [line for block in sorted(kernel.blocks, key=lambda b: b.rank) for line in self._block(block)]
        yield f"/* {kernel.name} */"
        yield f"#define STATIC_SHARED_ASKED {kernel.static_shared_bytes}u"
        yield f"#define BLOCKS {len(kernel.blocks)}"
        yield f"#define READY_WORDS {-(-len(kernel.blocks) // 64)}"
        yield f"#define TURNS {TURNS}"
        yield '#include "warp.h"'
        yield '#include "turns.h"'
        yield from self._warp()
        yield f"static uint32_t hints[{max(len(kernel.sites), 1)}];"
        yield "static void run_warp(struct run *restrict k, struct warp_common *restrict common) {"
        yield "  struct warp *restrict w = (struct warp *)common;"
        yield "  const uint64_t *variables = k->launch->variables;"
        yield "  (void)variables;"
        yield from (f"  {line}" for line in self._outside())
        yield "  BEGIN_TURN"
        yield "next:"
        yield "  NEXT_RANK"
        yield "  switch (rank) {"
        for block in kernel.blocks:
            yield f"    case {block.rank}: goto B{block.rank};"
        yield "  }"
        yield from (f"  {line}" for line in code)
        yield "leave:"
        yield "  END_TURN"
        yield "}"
        yield from self._entry()

    def _outside(self) -> Iterator[str]:
        """Write what is the same for a whole block: parameters, and what is computed of them."""
        for register, (offset, dtype) in self._kernel.arguments.items():
            kind = "uint32_t" if dtype.kind == "b" else f"uint{dtype.itemsize * 8}_t"
            place = f"(const char *)k->launch->parameters + {offset}"
            yield f"{kind} p{register}; memcpy(&p{register}, {place}, sizeof p{register});"
        for register, step in self._registers.uniform.items():
            x = [self._registers.typed(self._registers.outside(r.register) or "0u", r) for r in step.sources]
            ((target, dtype),) = results_of(self._kernel, step)
            assert target is not None
            (expression,) = expressions_of(self._kernel, step, x)
            yield f"const {self._registers.storage[register]} u{register} = {stored(expression, dtype, target)};"

    def _entry(self) -> Iterator[str]:
        kernel, barriers = self._kernel, "barriers" if self._barriers else "NULL"
        yield "static const struct kernel kernel = {"
        yield "  .warp_bytes = sizeof(struct warp), .ready = offsetof(struct warp, ready),"
        yield "  .at = offsetof(struct warp, at), .held = offsetof(struct warp, held),"
        yield "  .ready_words = READY_WORDS,"
        yield f"  .entry = {kernel.blocks[0].rank}, .barrier_count = {len(self._barriers)}, .barriers = {barriers},"
        yield f"  .local_bytes = {kernel.local_bytes}, .parameter_bytes = {parameter_bytes(kernel)},"
        yield f"  .static_shared = {kernel.dynamic_shared_offset}, .begin_warp = begin_warp, .run_warp = run_warp,"
        yield "};"
        yield '__attribute__((visibility("default")))'
        yield "int card_kernel(const card_launch *launch, card_account *account) {"
        yield "  return run_launch(&kernel, launch, account);"
        yield "}"

    def _warp(self) -> Iterator[str]:
        yield "struct warp {"
        yield "  struct warp_common common;"
        yield "  uint64_t ready[READY_WORDS];"
        yield "  uint32_t at[BLOCKS];"
        yield f"  uint32_t held[{len(self._barriers) + 1}];"
        yield "  uint32_t paused;"
        for register in sorted(self._registers.shared):
            yield f"  _Alignas(64) {self._registers.storage[register]} r{register}[32];"
        yield "};"
        yield "static void begin_warp(struct warp_common *common) {"
        yield "  struct warp *w = (struct warp *)common;"
        yield "  memset(w->ready, 0, sizeof w->ready), memset(w->at, 0, sizeof w->at);"
        yield "  memset(w->held, 0, sizeof w->held), w->paused = 0;"
        for register in sorted(self._registers.at_start):
            yield f"  memset(w->r{register}, 0, sizeof w->r{register});"
        yield "}"
        if not self._barriers:
            return
        following = [self._kernel.blocks[number].following for number in self._barriers]
        ranks = ", ".join(str(self._rank(number)) for number in following if number is not None)
        yield f"static const uint32_t barriers[] = {{{ranks}}};"

    def _block(self, block: BasicBlock) -> Iterator[str]:
        writer = BlockWriter(self._registers, block)
        for step, cut in writer.steps(block):
            if cut:
                writer.close_loop()
            if is_call(step):
                write_call(writer, step)
            elif isinstance(step, Compute) and not self._is_outside(step):
                writer.compute(step)
        self._end(writer, block)
        steps = len(block.steps) + (block.end is not None)
        yield f"B{block.rank}: {{"
        yield f"  COUNT({steps})"
        yield from (f"  k->account.{name} += {count} * lanes;" for name, count in self._operations(block).items())
        if any("lane[l]" in line for line in writer.lines):
            yield "  SPREAD_MASK"
        yield from (f"  {line}" for line in writer.lines)
        yield "}"

    def _is_outside(self, step: Compute) -> bool:
        target = step.targets[0]
        return target is not None and self._registers.uniform.get(target.register) is step

    def _operations(self, block: BasicBlock) -> dict[str, int]:
        found: dict[str, int] = {}
        for step in block.steps:
            if isinstance(step, Compute):
                for name, count in _cost(self._kernel, step):
                    found[name] = found.get(name, 0) + count
        return found

    # Where a block leads

    def _end(self, writer: BlockWriter, block: BasicBlock) -> None:
        end = block.end
        if end is None or (isinstance(end, Exit | Branch) and end.guard is None):
            writer.close_loop()
        if end is None:
            self._go(writer, block, block.following)
        elif end.sources:  # a table of branches, or a barrier that votes
            raise not_translated(self._kernel, end)
        elif isinstance(end, Barrier):
            self._hold(writer, block)
        elif isinstance(end, Exit):
            self._exit(writer, block, end)
        else:
            self._branch(writer, block, end)

    def _rank(self, number: int) -> int:
        return self._kernel.blocks[number].rank

    def _go(self, writer: BlockWriter, block: BasicBlock, number: int | None) -> None:
        if number is None:
            writer.lines.append("goto next;")
        else:
            rank = self._rank(number)
            writer.lines.append(f"{'GO_BACK' if rank <= block.rank else 'GO'}({rank})")

    def _predicate(self, writer: BlockWriter, step: Step) -> None:
        assert step.guard is not None
        taken = writer.mask(step.guard)
        writer.close_loop()
        writer.lines.append(f"const uint32_t taken = {taken}, rest = mask & ~taken;")

    def _branch(self, writer: BlockWriter, block: BasicBlock, end: Step) -> None:
        if end.guard is None:
            self._go(writer, block, block.branch[0])
            return
        self._predicate(writer, end)
        writer.lines.append("if (!rest) {")
        self._go(writer, block, block.branch[0])
        writer.lines.append("}")
        if block.following is None:
            writer.lines.append(f"PUT({self._rank(block.branch[0])}, taken)")
        else:
            writer.lines.append("if (!taken) {")
            self._go(writer, block, block.following)
            writer.lines.append("}")
            writer.lines.append(f"PUT({self._rank(block.branch[0])}, taken)")
            writer.lines.append(f"PUT({self._rank(block.following)}, rest)")
        writer.lines.append("goto next;")

    def _exit(self, writer: BlockWriter, block: BasicBlock, end: Exit) -> None:
        trap = ""
        if end.trap:
            line = self._kernel.sites[end.site].ptx_line
            trap = f"{{ k->site_line = {line}; fail(k, CARD_LAUNCH_FAILED, 0); goto leave; }}"
        if end.guard is None:
            writer.lines += [trap, "goto next;"]
            return
        self._predicate(writer, end)
        if trap:
            writer.lines.append(f"if (taken) {trap}")
        writer.lines.append("if (!rest) goto next;")
        writer.lines.append("mask = rest;")
        self._go(writer, block, block.following)

    def _hold(self, writer: BlockWriter, block: BasicBlock) -> None:
        number = self._barriers.index(self._kernel.blocks.index(block))
        writer.close_loop()
        writer.lines.append(f"w->held[{number}] |= mask;")
        writer.lines.append("goto next;")


def parameter_bytes(kernel: Kernel) -> int:
    return max((p.offset + p.size for p in kernel.parameters), default=0)


_SPECIAL_FUNCTIONS = ("div", "rcp", "sqrt", "rsqrt", "sin", "cos", "tanh", "lg2", "ex2")


def _cost(kernel: Kernel, step: Compute) -> list[tuple[str, int]]:
    """Name the counters of the account that an operation of one thread adds to."""
    match = match_of(kernel, step)
    base, kinds = match.form.base, set(match.choice.values())
    halves = kinds & {"f16", "f16x2", "bf16", "bf16x2"}
    floats = halves or kinds & {"f32", "f64"}
    if base in ("mov", "ld", "st", "cp", "cvta", "isspacep"):
        return []
    if base in _SPECIAL_FUNCTIONS and floats:
        return [("special", 1)]
    if base in ("add", "sub", "mul", "fma", "mad") and floats:
        count = 2 if base in ("fma", "mad") else 1
        if halves:
            return [("flop16", count * (2 if any(kind.endswith("x2") for kind in halves) else 1))]
        return [("flop64" if "f64" in kinds else "flop32", count)]
    return [("integer", 1)]
