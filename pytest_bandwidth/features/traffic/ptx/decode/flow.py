"""Cut steps into basic blocks, find the registers that are live in each, and decide in which order blocks run.

Threads wait at the block of the smallest rank among all that are ready. Ranks follow the flow forwards, with each
loop's blocks side by side, so threads that part ways meet again at the first block that all of them reach.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pytest_bandwidth.features.traffic.ptx.program import Barrier, BasicBlock, Branch, Exit, Step


@dataclass(frozen=True, slots=True)
class LabelMark:
    name: str


def basic_blocks(items: Iterable[Step | LabelMark]) -> tuple[BasicBlock, ...]:
    blocks = _cut(items)
    successors = [(*block.branch, *(() if block.following is None else (block.following,))) for block in blocks]
    ranks, live = _ranks(successors), _liveness(blocks, successors)
    return tuple(replace(b, rank=r, live=alive) for b, r, alive in zip(blocks, ranks, live, strict=True))


def _cut(items: Iterable[Step | LabelMark]) -> list[BasicBlock]:
    """Cut blocks at jumps, exits and barriers, and before labels."""
    bodies: list[tuple[list[Step], Step | None]] = [([], None)]
    places: dict[str, int] = {}
    for item in items:
        steps, end = bodies[-1]
        if isinstance(item, LabelMark):
            if steps or end is not None:
                bodies.append(([], None))
            places[item.name] = len(bodies) - 1
        elif isinstance(item, Branch | Exit | Barrier):
            if end is not None:
                bodies.append(([], None))
            bodies[-1] = (bodies[-1][0], item)
            bodies.append(([], None))
        else:
            steps.append(item)
    blocks = []
    for number, (steps, end) in enumerate(bodies):
        branch = tuple(places[label] for label in end.labels) if isinstance(end, Branch) else ()
        leaves = end is not None and not isinstance(end, Barrier) and end.guard is None
        following = None if leaves or number + 1 == len(bodies) else number + 1
        blocks.append(BasicBlock(tuple(steps), end, branch, following, 0, 0))
    return blocks


def _liveness(blocks: Sequence[BasicBlock], successors: Sequence[Sequence[int]]) -> list[int]:
    """Find registers that may be read before they are written, from each block's start on (backward data flow)."""
    read, written = zip(*(_uses(block) for block in blocks), strict=True)
    live = [0] * len(blocks)
    changed = True
    while changed:
        changed = False
        for number in range(len(blocks) - 1, -1, -1):
            out = 0
            for successor in successors[number]:
                out |= live[successor]
            new = read[number] | (out & ~written[number])
            if new != live[number]:
                live[number], changed = new, True
    return live


def _uses(block: BasicBlock) -> tuple[int, int]:
    read = written = 0
    for step in (*block.steps, *(() if block.end is None else (block.end,))):
        used = 0
        for source in step.sources:
            used |= 1 << source.register
        if step.guard is not None:
            used |= 1 << step.guard.register
        read |= used & ~written
        if step.guard is None:  # a guarded write may leave the old value
            for target in step.targets:
                if target is not None:
                    written |= 1 << target.register
    return read, written


def _ranks(successors: Sequence[Sequence[int]]) -> list[int]:
    order = _ordered(list(range(len(successors))), {n: set(s) for n, s in enumerate(successors)}, 0)
    ranks = [0] * len(successors)
    for rank, number in enumerate(order):
        ranks[number] = rank
    return ranks


def _ordered(nodes: list[int], edges: dict[int, set[int]], entry: int) -> list[int]:
    """Sort topologically with every loop contiguous: strongly connected parts in order, each without its back edges."""
    parts = _strong_components(nodes, edges)
    part_of = {node: index for index, part in enumerate(parts) for node in part}
    waiting = [0] * len(parts)
    onward: list[set[int]] = [set() for _ in parts]
    heads: dict[int, int] = {}
    for node in nodes:
        for target in edges[node]:
            reached, own = part_of.get(target, part_of[node]), part_of[node]
            if reached == own:
                continue
            # The first block in the text that is entered from outside heads a loop.
            heads[reached] = min(target, heads.get(reached, target))
            if reached not in onward[own]:
                onward[own].add(reached)
                waiting[reached] += 1
    if entry in part_of:
        heads[part_of[entry]] = entry
    ready = [(min(part), index) for index, part in enumerate(parts) if waiting[index] == 0]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, index = heapq.heappop(ready)
        part = parts[index]
        head = heads.get(index, min(part))
        if len(part) == 1:
            order.extend(part)
        else:
            inner = {node: {t for t in edges[node] if t != head} for node in part}
            order.extend(_ordered(part, inner, head))
        for following in onward[index]:
            waiting[following] -= 1
            if waiting[following] == 0:
                heapq.heappush(ready, (min(parts[following]), following))
    return order


def _strong_components(nodes: Sequence[int], edges: dict[int, set[int]]) -> list[list[int]]:
    """Find strongly connected parts by Tarjan's algorithm (1972), without recursion."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    on_stack: set[int] = set()
    stack: list[int] = []
    parts: list[list[int]] = []
    inside = set(nodes)
    for root in nodes:
        if root in index:
            continue
        work = [(root, iter(sorted(edges[root] & inside)))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(sorted(edges[target] & inside))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    part = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        part.append(member)
                        if member == node:
                            break
                    parts.append(sorted(part))
    return parts
