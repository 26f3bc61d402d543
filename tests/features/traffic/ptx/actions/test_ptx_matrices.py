"""Tensor cores and asynchronous copies, against the places that the PTX ISA gives each element of a fragment."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from opcode_lab import encoded, run_body, without_faults

from pytest_bandwidth.domain.errors import NotOnThisDevice
from pytest_bandwidth.features.traffic.ptx import Execution

Array = np.ndarray
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8}
WHOLE = ("s8", "u8")
SATURATED = np.iinfo(np.int32).max


def numbers(generator: np.random.Generator, shape: tuple[int, int], kind: str) -> Array:
    return generator.integers(0 if kind == "u8" else -4, 5, shape)


def place_in_a(lane: int, element: int, bits: int) -> tuple[int, int]:
    """Return row and column of A's element: `ai` of the ISA's figures, for all shapes of 16 rows."""
    group, thread, each = lane // 4, lane % 4, 32 // bits
    register, within = divmod(element, each)
    return group + 8 * (register % 2), thread * each + within + 4 * each * (register // 2)


def place_in_b(lane: int, element: int, bits: int) -> tuple[int, int]:
    group, thread, each = lane // 4, lane % 4, 32 // bits
    register, within = divmod(element, each)
    return thread * each + within + 4 * each * register, group


def place_in_c(lane: int, element: int) -> tuple[int, int]:
    return lane // 4 + 8 * (element // 2), lane % 4 * 2 + element % 2


def fragment(matrix: Array, place: object, elements: int, *details: int) -> Array:
    """Return each lane's registers: (32, words) of uint32."""
    lanes = [[matrix[place(lane, element, *details)] for element in range(elements)] for lane in range(32)]  # type: ignore[operator]
    return np.ascontiguousarray(lanes).view(np.uint32)


def loaded(name: str, argument: int, words: int, kind: str = "b32") -> str:
    """Load a lane's words of an argument into registers `%name0` …"""
    lines = [f" .reg .{kind} %{name}<{words}>;", f" mad.wide.u32 %x, %t, {4 * words}, %p{argument};"]
    return "\n".join([*lines, *(f" ld.global.{kind} %{name}{n}, [%x+{4 * n}];" for n in range(words))]) + "\n"


def listed(name: str, words: int) -> str:
    return "{" + ", ".join(f"%{name}{n}" for n in range(words)) + "}"


def multiplied(shape: str, left: str, right: str, result: str, a: Array, b: Array, c: Array, more: str = "") -> Array:
    """Run one mma; return D."""
    rows, depth = a.shape
    kind = "b32" if result == "f16" else result
    words_a, words_b, words_c = rows * depth * BITS[left] // 1024, depth * BITS[left] // 128, rows // 4
    if result == "f16":
        words_c //= 2
    held = {"f16": np.float16, "f32": np.float32, "s32": np.int32}[result]
    given = (
        fragment(encoded(a, left), place_in_a, words_a * 32 // BITS[left], BITS[left]),
        fragment(encoded(b, right), place_in_b, words_b * 32 // BITS[left], BITS[left]),
        fragment(c.astype(held), place_in_c, rows // 4),
    )
    opcode = f"mma.sync.aligned.{shape}.row.col{more}.{result}.{left}.{right}.{result}"
    body = loaded("a", 1, words_a) + loaded("b", 2, words_b) + loaded("c", 3, words_c, kind)
    operands = ", ".join(listed(*one) for one in (("c", words_c), ("a", words_a), ("b", words_b), ("c", words_c)))
    stores = "".join(f" st.global.{kind} [%x+{4 * n}], %c{n};\n" for n in range(words_c))
    out = np.zeros((32, words_c), np.uint32)
    body += f" {opcode} {operands};\n mad.wide.u32 %x, %t, {4 * words_c}, %p0;\n{stores}"
    without_faults(run_body(body, (out, *given), 32))
    lanes = np.ascontiguousarray(out).view(held).reshape(32, rows // 4)
    found = np.zeros((rows, 8), held)
    for lane in range(32):
        for element in range(rows // 4):
            found[place_in_c(lane, element)] = lanes[lane, element]
    return found


@pytest.mark.parametrize(
    ("shape", "left", "right", "result"),
    [
        *(("m16n8k8", "f16", "f16", result) for result in ("f32", "f16")),
        *(("m16n8k16", "f16", "f16", result) for result in ("f32", "f16")),
        *((f"m16n8k{depth}", "bf16", "bf16", "f32") for depth in (8, 16)),
        *((f"m16n8k{depth}", "tf32", "tf32", "f32") for depth in (4, 8)),
        *((f"m16n8k{depth}", one, two, "s32") for depth in (16, 32) for one in WHOLE for two in WHOLE),
        *(("m8n8k16", one, two, "s32") for one in WHOLE for two in WHOLE),
        *(("m16n8k32", one, two, "f32") for one in ("e4m3", "e5m2") for two in ("e4m3", "e5m2")),
    ],
)
def test_a_warps_product_of_matrices(shape: str, left: str, right: str, result: str) -> None:
    generator, depth = np.random.default_rng(1), int(shape.rpartition("k")[2])
    rows = int(shape[1 : shape.index("n")])
    a, b = numbers(generator, (rows, depth), left), numbers(generator, (depth, 8), right)
    c = generator.integers(-9, 10, (rows, 8))
    np.testing.assert_array_equal(multiplied(shape, left, right, result, a, b, c), a @ b + c)


def test_whole_numbers_saturate_where_the_opcode_says_so() -> None:
    a, b, c = np.full((16, 16), 4), np.full((16, 8), 4), np.full((16, 8), SATURATED)
    wrapped = multiplied("m16n8k16", "s8", "s8", "s32", a, b, c)
    assert (wrapped == (SATURATED + 256 + 2**31) % 2**32 - 2**31).all()
    assert (multiplied("m16n8k16", "s8", "s8", "s32", a, b, c, ".satfinite") == SATURATED).all()


# ---- ldmatrix, stmatrix ----------------------------------------------------------------------------------------------

BOX = " .shared .align 16 .b8 box[512];\n .reg .u64 %box;\n .reg .u32 %row;\n mov.u64 %box, box;\n"


def multiplied_in_any_layout(
    shape: str, kind: str, result: str, layouts: tuple[str, str, str], *, space: str = ".global", more: str = ""
) -> Execution:
    """Load A, B and C, multiply and store D by wmma, D by way of shared memory; compare with NumPy."""
    rows, columns, depth = (int(part) for part in shape.replace("m", "").replace("n", "k").split("k"))
    generator = np.random.default_rng(1)
    a, b = numbers(generator, (rows, depth), kind), numbers(generator, (depth, columns), kind)
    c = generator.integers(-50, 50, (rows, columns))
    dtype = {"f16": np.float16, "f32": np.float32, "s32": np.int32}[result]
    held = [
        np.ascontiguousarray(matrix if layout == "row" else matrix.T)
        for matrix, layout in zip((encoded(a, kind), encoded(b, kind), c.astype(dtype)), layouts, strict=True)
    ]
    words = [8 if kind == "f16" else size * depth * BITS[kind] // 1024 for size in (rows, columns)]
    sums, register = 4 if result == "f16" else 8, "f32" if result == "f32" else "b32"
    types = f"{result}.{result}" if kind == "f16" else f"{result}.{kind}.{kind}.{result}"
    of_a, of_b, of_c = layouts
    stride = columns if of_c == "row" else rows
    body = f""" .reg .b32 %a<{words[0]}>, %b<{words[1]}>;
 .reg .{register} %c<{sums}>;
 .shared .align 32 .b8 box[1024];
 .shared .align 32 .b8 other[1024];
 wmma.load.a.sync.aligned.{of_a}.{shape}{space}.{kind} {listed("a", words[0])}, [%p0];
 wmma.load.b.sync.aligned.{of_b}.{shape}{space}.{kind} {listed("b", words[1])}, [%p1], {held[1].shape[1]};
 wmma.load.c.sync.aligned.{of_c}.{shape}{space}.{result} {listed("c", sums)}, [%p2], {stride};
 wmma.mma.sync.aligned.{of_a}.{of_b}.{shape}.{types}{more} {listed("c", sums)}, {listed("a", words[0])},
  {listed("b", words[1])}, {listed("c", sums)};
 wmma.store.d.sync.aligned.row.{shape}.shared.{result} [box], {listed("c", sums)};
 bar.sync 0;
 wmma.load.c.sync.aligned.row.{shape}.shared::cta.{result} {listed("c", sums)}, [box];
 wmma.store.d.sync.aligned.col.{shape}.shared::cta.{result} [other], {listed("c", sums)};
 bar.sync 0;
 wmma.load.c.sync.aligned.col.{shape}.shared.{result} {listed("c", sums)}, [other];
 wmma.store.d.sync.aligned.{of_c}.{shape}{space}.{result} [%p3], {listed("c", sums)}, {stride};
"""
    d = np.zeros_like(held[2])
    execution = without_faults(run_body(body, (*held, d), 32))
    np.testing.assert_array_equal(d if of_c == "row" else d.T, a @ b + c)
    return execution


@pytest.mark.parametrize(
    ("shape", "types"),
    [
        *itertools.product(
            ("m16n16k16", "m32n8k16", "m8n32k16"), ("f16 f32", "f16 f16", "bf16 f32", "s8 s32", "u8 s32")
        ),
        ("m16n16k8", "tf32 f32"),
    ],
)
def test_matrices_of_any_layout(shape: str, types: str) -> None:
    kind, result = types.split()
    for layouts in itertools.product(("row", "col"), repeat=3):
        multiplied_in_any_layout(shape, kind, result, layouts, space="" if kind == "tf32" else ".global")


def test_any_layout_is_counted_as_the_products_own() -> None:
    """Four loads of 4 bytes a lane for A and for B, eight rows of 16 bytes each; four of 8 bytes for C, of 32 bytes."""
    counts = multiplied_in_any_layout("m16n16k16", "f16", "f32", ("row", "col", "row")).counts
    assert (counts.loads.requests, counts.loads.sectors) == (4 + 4 + 4, 32 + 32 + 32)
    assert (counts.stores.requests, counts.stores.sectors) == (4, 32)
    turned = multiplied_in_any_layout("m16n16k16", "f16", "f32", ("col", "col", "row")).counts
    assert turned.loads.requests == 8 + 4 + 4  # halves of A one by one


def test_a_product_of_any_layout_saturates() -> None:
    multiplied_in_any_layout("m16n16k16", "s8", "s32", ("row", "col", "row"), more=".satfinite")


@pytest.mark.parametrize(
    "opcode",
    [
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32 FOUR, A4, A2, FOUR",
        "mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 FOUR, A4, A2, FOUR",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f16 FOUR, A4, A2, FOUR",
        "mma.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16 FOUR, A4, A2, FOUR",
        "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 A4, A2, A1, A4",
        "mma.sync.aligned.m8n8k16.row.col.f16.f16.f16.f16 A2, A2, A2, A2",
        "wmma.load.a.sync.aligned.row.m16n16k8.f16 A1, [%p0]",
        "wmma.load.c.sync.aligned.row.m16n16k16.tf32 A1, [%p0]",
        "wmma.load.a.sync.aligned.row.m16n16k16.bf16 {%a0, %a0, %a0}, [%p0]",
        "wmma.store.d.sync.aligned.row.m16n16k16.bf16 [%p0], A4",
        "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f16 A1, A1, A1, A1",
        "wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.u8.s32 A1, A1, A1, A1",
        "wmma.mma.sync.aligned.row.col.m16n16k8.f32.bf16.bf16.f32 A1, A1, A1, A1",
    ],
)
def test_loads_and_products_that_the_isa_does_not_have_are_refused(opcode: str) -> None:
    body = f" .reg .b32 %a<4>;\n .reg .f32 %c<4>;\n {opcode};\n".replace("FOUR", listed("c", 4))
    for words in (1, 2, 4):
        body = body.replace(f"A{words}", listed("a", words))
    with pytest.raises(NotOnThisDevice, match=opcode.split()[0].replace(".", r"\.")):
        run_body(body, (np.zeros(4, np.float32),), 32)


@pytest.mark.parametrize("space", ["shared", "shared::cta"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_matrices_move_between_rows_in_shared_memory_and_a_warps_registers(
    count: int, transposed: bool, space: str
) -> None:
    """Each lane stores its 16 bytes of the input as a row, loads its fragment, stores that back, and reads its row."""
    rows = np.arange(count * 8 * 8, dtype=np.uint16).reshape(count * 8, 8)
    given, fragments, back = np.zeros((32, 8), np.uint16), np.zeros((32, count), np.uint32), np.zeros_like(rows)
    given[: count * 8] = rows
    trans = ".trans" if transposed else ""
    names = listed("m", count)
    body = (
        BOX
        + loaded("w", 0, 4)
        + f" setp.lt.u32 %has, %t, {8 * count};\n"
        + " shl.b32 %row, %t, 4;\n"
        + "@%has st.shared.v4.b32 [%row], {%w0, %w1, %w2, %w3};\n bar.warp.sync 0xffffffff;\n"
        + f" .reg .b32 %m<{count}>;\n ldmatrix.sync.aligned.m8n8.x{count}{trans}.{space}.b16 {names}, [%row];\n"
        + f" mad.wide.u32 %x, %t, {4 * count}, %p1;\n"
        + "".join(f" st.global.b32 [%x+{4 * n}], %m{n};\n" for n in range(count))
        + " bar.warp.sync 0xffffffff;\n"
        + f" stmatrix.sync.aligned.m8n8.x{count}{trans}.{space}.b16 [%row], {names};\n bar.warp.sync 0xffffffff;\n"
        + "@%has ld.shared.v4.b32 {%w0, %w1, %w2, %w3}, [%row];\n mad.wide.u32 %x, %t, 16, %p2;\n"
        + "@%has st.global.v4.b32 [%x], {%w0, %w1, %w2, %w3};\n"
    )
    execution = without_faults(run_body(" .reg .pred %has;\n" + body, (given, fragments, back), 32))
    for matrix in range(count):
        square = rows[8 * matrix : 8 * matrix + 8]
        square = square.T if transposed else square
        for lane in range(32):
            pair = fragments[lane, matrix : matrix + 1].view(np.uint16)
            np.testing.assert_array_equal(pair, square[lane // 4, 2 * (lane % 4) : 2 * (lane % 4) + 2])
    np.testing.assert_array_equal(back, rows)
    assert execution.counts.bank_conflicts == 0


# ---- products of a warp group ----------------------------------------------------------------------------------------

# The descriptor's two highest bits, by how many bytes of a row lie together.
SWIZZLE = {0: 0, 128: 1, 64: 2, 32: 3}


def in_shared_memory(rows: Array, span: int, first_byte: int) -> tuple[Array, int]:
    """Lay rows of 32 bytes out as a descriptor of that swizzle tells; return the bytes and the descriptor.

    Rows of a swizzled matrix are `span` bytes apart, with each 16 bytes put where the row's number says; without
    swizzle, eight rows' halves of 16 bytes lie together.
    """
    count = len(rows)
    memory = np.zeros(first_byte + max(span, 32) * count, np.uint8)
    leading, stride = (128, 256) if span == 0 else (16, 8 * span)
    for row in range(count):
        for half in (0, 1):
            if span:
                address = first_byte + row * span + 16 * half
                address ^= (address // 128 % (span // 16)) * 16
            else:
                address = first_byte + row // 8 * stride + row % 8 * 16 + half * leading
            memory[address : address + 16] = rows[row, 16 * half : 16 * half + 16]
    return memory, first_byte >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | SWIZZLE[span] << 62


def multiplied_by_a_group(
    columns: int, kind: str, result: str, a: Array, b: Array, *, span: int = 128, registers: bool = False, signs: str
) -> Array:
    """Run one wgmma with A from shared memory or registers; return D of 64 rows. B's rows are its columns."""
    depth = a.shape[1]
    rows_b, tell_b = in_shared_memory(np.ascontiguousarray(encoded(b, kind)).view(np.uint8), span, 0)
    first = -(-len(rows_b) // 1024) * 1024
    rows_a, tell_a = in_shared_memory(np.ascontiguousarray(encoded(a, kind)).view(np.uint8), span, first)
    memory = np.zeros(-(-len(rows_a) // 2048) * 2048, np.uint8)
    memory[: len(rows_b)] |= rows_b
    memory[: len(rows_a)] |= rows_a
    words = columns // 8 * (2 if result == "f16" else 4)
    register = {"f16": "b32", "f32": "f32", "s32": "s32"}[result]
    out = np.zeros((128, words), np.uint32)
    each = fragment_of_group(encoded(a, kind), BITS[kind])
    opcode = f"wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.{result}.{kind}.{kind}"
    filled = "".join(
        f" ld.global.v4.b32 {{%w0, %w1, %w2, %w3}}, [%x+{n}];\n st.shared.v4.b32 [%at+{n}], {{%w0, %w1, %w2, %w3}};\n"
        for n in range(0, len(memory) // 128, 16)
    )
    body = (
        f" .shared .align 1024 .b8 box[{len(memory)}];\n .reg .b32 %w<4>, %at;\n .reg .pred %no;\n"
        f" .reg .{register} %d<{words}>;\n mul.lo.u32 %at, %t, {len(memory) // 128};\n mad.wide.u32 %x, %t, "
        f"{len(memory) // 128}, %p1;\n{filled} bar.sync 0;\n fence.proxy.async.shared::cta;\n"
        " wgmma.fence.sync.aligned;\n setp.ne.u32 %no, 0, 0;\n" + loaded("a", 2, 4)
    )
    left = listed("a", 4) if registers else f"0x{tell_a:x}"
    body += f" {opcode} {listed('d', words)}, {left}, 0x{tell_b:x}, %no{signs};\n"
    body += " wgmma.commit_group.sync.aligned;\n wgmma.wait_group.sync.aligned 0;\n"
    body += f" mad.wide.u32 %x, %t, {4 * words}, %p0;\n"
    body += "".join(f" st.global.{register} [%x+{4 * n}], %d{n};\n" for n in range(words))
    without_faults(run_body(body, (out, memory, each), 128, arch="sm_90a"))
    held = {"f16": np.float16, "f32": np.float32, "s32": np.int32}[result]
    lanes = out.view(held).reshape(128, -1)
    found = np.zeros((64, columns), held)
    for lane in range(128):
        for element in range(lanes.shape[1]):
            row, column = place_in_c(lane % 32, element % 4)
            found[lane // 32 * 16 + row, element // 4 * 8 + column] = lanes[lane, element]
    return found


def fragment_of_group(a: Array, bits: int) -> Array:
    each = [fragment(a[16 * warp : 16 * warp + 16], place_in_a, 4 * 32 // bits, bits) for warp in range(4)]
    return np.concatenate(each)


@pytest.mark.parametrize(("kind", "depth"), [("f16", 16), ("tf32", 8), ("s8", 32)])
def test_a_warp_groups_product_of_each_width(kind: str, depth: int) -> None:
    """Of each depth: the next test has the other types."""
    generator = np.random.default_rng(2)
    result = "s32" if kind == "s8" else "f32"
    signs = "" if kind == "s8" else ", 1, 1, 0, 0"
    a = numbers(generator, (64, depth), kind)
    for columns in range(8, 257, 8):
        b = numbers(generator, (columns, depth), kind)
        found = multiplied_by_a_group(columns, kind, result, a, b, signs=signs)
        np.testing.assert_array_equal(found, a @ b.T, err_msg=str(columns))


@pytest.mark.parametrize("kind", ["f16", "bf16", "tf32", "u8", "e4m3", "e5m2"])
@pytest.mark.parametrize("span", [0, 32, 64, 128])
def test_a_descriptor_tells_where_a_matrix_lies(span: int, kind: str) -> None:
    generator, depth = np.random.default_rng(3), 256 // BITS[kind]
    result = "s32" if kind == "u8" else "f32"
    a, b = numbers(generator, (64, depth), kind), numbers(generator, (16, depth), kind)
    signs = "" if kind == "u8" else ", 1, 1, 0, 0"
    np.testing.assert_array_equal(multiplied_by_a_group(16, kind, result, a, b, span=span, signs=signs), a @ b.T)


def test_signs_registers_and_halves_of_a_warp_groups_product() -> None:
    generator = np.random.default_rng(4)
    a, b = numbers(generator, (64, 16), "f16"), numbers(generator, (24, 16), "f16")
    for signs, factor in ((", 1, 1", 1), (", -1, 1", -1), (", 1, -1", -1), (", -1, -1", 1)):
        for result in ("f16", "f32"):
            found = multiplied_by_a_group(24, "f16", result, a, b, registers=True, signs=f"{signs}, 0")
            np.testing.assert_array_equal(found, factor * (a @ b.T))


# ---- asynchronous copies ---------------------------------------------------------------------------------------------

COPY = """ .shared .align 16 .b8 box[2048];
 .reg .u64 %to, %from;
 .reg .u32 %at, %n, %v;
 .reg .pred %even;
 shl.b32 %at, %t, 4;
 mad.wide.u32 %from, %t, 16, %p1;
"""
WAIT = " cp.async.commit_group;\n cp.async.wait_group 0;\n bar.sync 0;\n"
# Each thread reads what its neighbour has copied.
READ = """ xor.b32 %n, %t, 33;
 shl.b32 %n, %n, 4;
 ld.shared.u32 %v, [%n];
 mad.wide.u32 %to, %t, 4, %p0;
 st.global.u32 [%to], %v;
"""
CP = " cp.async.cg.shared.global [%at], [%from], 16;\n"
NEIGHBOUR = np.arange(64) ^ 33


def copied(body: str) -> tuple[Array, Execution]:
    out, source = np.zeros(64, np.uint32), np.arange(260, dtype=np.uint32).reshape(65, 4) + 1
    return out, run_body(COPY + body, (out, source), 64)


@pytest.mark.parametrize("prefetch", ["", ".L2::64B", ".L2::128B", ".L2::256B"])
@pytest.mark.parametrize(("cached", "size"), [("cg", 16), ("ca", 4), ("ca", 8), ("ca", 16)])
@pytest.mark.parametrize("space", ["shared", "shared::cta"])
def test_an_asynchronous_copy_is_a_load_of_global_memory(space: str, cached: str, size: int, prefetch: str) -> None:
    out, execution = copied(f" cp.async.{cached}.{space}.global{prefetch} [%at], [%from], {size};\n{WAIT}{READ}")
    without_faults(execution)
    np.testing.assert_array_equal(out, 4 * NEIGHBOUR + 1)
    loads = execution.counts.loads
    assert (loads.accesses, loads.requests, loads.bytes_requested) == (64, 2, 64 * size)
    assert loads.sectors == 2 * 16
    assert execution.counts.shared_stores.requests == 2


def test_a_copy_of_no_bytes_stores_zeros_and_reads_nothing() -> None:
    odd = " and.b32 %n, %t, 1;\n shl.b32 %n, %n, 4;\n cp.async.cg.shared.global [%at], [%from], 16, %n;\n"
    out, execution = copied(odd + WAIT + READ)
    without_faults(execution)
    np.testing.assert_array_equal(out, np.where(NEIGHBOUR % 2, 4 * NEIGHBOUR + 1, 0))
    assert execution.counts.loads.accesses == 32


def test_a_guarded_copy_leaves_the_others_bytes_as_they_are() -> None:
    guarded = " and.b32 %n, %t, 1;\n setp.eq.u32 %even, %n, 0;\n mov.u32 %v, 7;\n st.shared.u32 [%at], %v;\n"
    out, execution = copied(guarded + CP.replace(" cp", "@%even cp") + WAIT + READ)
    without_faults(execution)
    np.testing.assert_array_equal(out, np.where(NEIGHBOUR % 2, 7, 4 * NEIGHBOUR + 1))


@pytest.mark.parametrize(
    ("waits", "codes"),
    [
        (" cp.async.wait_all;\n bar.sync 0;\n", set()),
        (WAIT, set()),
        (" cp.async.commit_group;\n cp.async.commit_group;\n cp.async.wait_group 1;\n bar.sync 0;\n", set()),
        ("", {"early"}),
        (" bar.sync 0;\n", {"early"}),
        (" cp.async.commit_group;\n cp.async.wait_group 1;\n bar.sync 0;\n", {"early"}),
        (" cp.async.wait_group 0;\n bar.sync 0;\n", {"early"}),  # no group was committed
        (" cp.async.wait_all;\n", {"race"}),
        (" bar.sync 0;\n cp.async.wait_all;\n", {"race"}),  # waited for after the barrier
    ],
)
def test_only_what_was_waited_for_may_be_read(waits: str, codes: set[str]) -> None:
    found = {fault.code for fault in copied(CP + waits + READ)[1].faults}
    assert found >= codes if codes else not found


def test_a_buffer_that_others_still_read_is_overwritten() -> None:
    _, execution = copied(CP + WAIT + READ + " add.s64 %from, %from, 16;\n" + CP + WAIT)
    assert {fault.code for fault in execution.faults} == {"race"}


@pytest.mark.parametrize(
    "opcode",
    [
        "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%d0, %d1, %d2, %d3}, %tell, %tell, %no, 1, 1;",
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%w}, [%at]; st.global.b32 [%p0], %w;",
        "ld.shared.b32 %w, [%at]; mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%d0, %d1, %d2, %d3},"
        " {%w, %w, %w, %w}, {%w, %w}, {%d0, %d1, %d2, %d3}; st.global.f32 [%p0], %d0;",
    ],
)
def test_a_matrix_that_was_never_written_is_a_fault(opcode: str) -> None:
    *_, tell = in_shared_memory(np.zeros((64, 32), np.uint8), 32, 0)
    body = " .shared .align 1024 .b8 box[4096];\n .reg .b32 %w, %at;\n .reg .f32 %d<4>;\n .reg .pred %no;\n"
    body += f" .reg .b64 %tell;\n mov.b64 %tell, {tell};\n mov.u32 %at, box;\n setp.ne.u32 %no, 0, 0;\n {opcode}\n"
    faults = run_body(body, (np.zeros(1, np.uint32),), 128, arch="sm_90a").faults
    assert ("uninitialised", "box") in [(fault.code, fault.array) for fault in faults]


def test_rows_that_nobody_filled_do_not_matter_where_their_products_are_dropped() -> None:
    """Half of A is unwritten: its lanes' results are stored, or not."""
    body = """ .reg .b32 %a<4>, %b, %at;
 .reg .f32 %c<4>;
 .reg .pred %upper;
 .shared .align 16 .b8 box[512];
 mov.u32 %at, box;
 setp.lt.u32 %upper, %t, 8;
 mad.lo.u32 %at, %t, 32, %at;
@%upper st.shared.v4.b32 [%at], {%t, %t, %t, %t};
@%upper st.shared.v4.b32 [%at+16], {%t, %t, %t, %t};
 bar.sync 0;
 and.b32 %b, %t, 15;
 mov.u32 %at, box;
 mad.lo.u32 %at, %b, 32, %at;
 shr.u32 %b, %t, 4;
 mad.lo.u32 %at, %b, 16, %at;
 ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%a0, %a1, %a2, %a3}, [%at];
 mov.b32 %b, 0x3c003c00;
 mov.f32 %c0, 0f00000000;
 mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%c0, %c1, %c2, %c3}, {%a0, %a1, %a2, %a3}, {%b, %b},
  {%c0, %c0, %c0, %c0};
 mad.wide.u32 %x, %t, 4, %p0;
 st.global.f32 [%x], %cWHICH;
"""
    out = np.zeros(32, np.float32)
    assert not run_body(body.replace("WHICH", "0"), (out,), 32).faults
    assert {fault.code for fault in run_body(body.replace("WHICH", "2"), (out,), 32).faults} == {"uninitialised"}
