"""Small Triton kernels whose TTIR texts lie beside this file; `python kernels.py FOLDER` makes them anew, without a GPU (Triton 3.6)."""

import sys
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, block: tl.constexpr):
    offs = tl.program_id(0) * block + tl.arange(0, block)
    mask = offs < n
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask) + tl.load(y_ptr + offs, mask), mask)


@triton.jit
def histogram(x_ptr, bins_ptr, lock_ptr, n, block: tl.constexpr):
    offs = tl.program_id(0) * block + tl.arange(0, block)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0)
    tl.atomic_add(bins_ptr + x, 1, mask=offs < n)
    tl.atomic_cas(lock_ptr, 0, 1)


@triton.jit
def moving(a_ptr, b_ptr, c_ptr, k, block: tl.constexpr):
    offs = tl.arange(0, block)
    a = a_ptr + offs
    b = b_ptr + offs
    acc = tl.zeros((block,), tl.float32)
    for _ in range(k):
        acc += tl.load(a) * tl.load(b)
        a += block
        b += block
        tl.store(c_ptr + offs, acc)
        c_ptr += block


@triton.jit
def swapped(a_ptr, b_ptr, k, block: tl.constexpr):
    # Two pointers change places in each turn, so both are written.
    offs = tl.arange(0, block)
    a = a_ptr + offs
    b = b_ptr + offs
    for _ in range(k):
        tl.store(a, tl.load(b) + 1)
        c = a
        a = b
        b = c


@triton.jit
def chosen(a_ptr, b_ptr, out_ptr, which, block: tl.constexpr):
    offs = tl.arange(0, block)
    if which > 0:
        p = a_ptr
        offs += 1
    else:
        p = b_ptr
    tl.store(p + offs, tl.load(out_ptr + offs))


@triton.jit
def early(a_ptr, out_ptr, n, block: tl.constexpr):
    if tl.program_id(0) >= n:
        return
    offs = tl.arange(0, block)
    tl.store(out_ptr + offs, tl.load(a_ptr + offs))


@triton.jit
def blocks(a_ptr, out_ptr, m, n, rows: tl.constexpr, columns: tl.constexpr):
    a = tl.make_block_ptr(a_ptr, (m, n), (n, 1), (0, 0), (rows, columns), (1, 0))
    o = tl.make_block_ptr(out_ptr, (m, n), (n, 1), (0, 0), (rows, columns), (1, 0))
    for _ in range(m, rows):
        tl.store(o, tl.load(a, boundary_check=(0, 1)), boundary_check=(0, 1))
        a = tl.advance(a, (rows, 0))
        o = tl.advance(o, (rows, 0))


@triton.jit
def descriptors(a_ptr, out_ptr, m, n, rows: tl.constexpr, columns: tl.constexpr):
    a = tl.make_tensor_descriptor(a_ptr, [m, n], [n, 1], [rows, columns])
    o = tl.make_tensor_descriptor(out_ptr, [m, n], [n, 1], [rows, columns])
    o.store([0, 0], a.load([0, 0]))


@triton.jit
def host_descriptors(a_desc, o_desc, scale_ptr):
    o_desc.store([0, 0], a_desc.load([0, 0]) * tl.load(scale_ptr))


@triton.jit(noinline=True)
def helper(p, q, offs):
    tl.store(p + offs, tl.load(q + offs) + 1)


@triton.jit
def calling(a_ptr, b_ptr, out_ptr, block: tl.constexpr):
    offs = tl.arange(0, block)
    helper(out_ptr, a_ptr, 3)
    tl.store(out_ptr + block + offs, tl.load(b_ptr + offs))


@triton.jit
def pointers(table_ptr, out_ptr, block: tl.constexpr):
    offs = tl.arange(0, block)
    p = tl.load(table_ptr).to(tl.pointer_type(tl.float32))
    tl.store(out_ptr + offs, tl.load(p + offs))


@triton.jit
def assembly(a_ptr, out_ptr, block: tl.constexpr):
    offs = tl.arange(0, block)
    x = tl.load(a_ptr + offs)
    y = tl.inline_asm_elementwise("add.f32 $0, $1, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(out_ptr + offs, y)


@triton.jit
def hidden_store(a_ptr, out_ptr):
    tl.inline_asm_elementwise("st.global.f32 [$1], 0f3f800000; mov.u32 $0, 0;", "=r,l", [a_ptr], dtype=tl.int32, is_pure=False, pack=1)
    tl.store(out_ptr, 1.0)


@triton.jit
def summed(a_ptr, out_ptr, n, block: tl.constexpr):
    offs = tl.arange(0, block)
    x = tl.load(a_ptr + offs, mask=offs < n, other=float("-inf"))
    m = tl.max(x, 0)
    s, i = tl.max(x, 0, return_indices=True)
    e = tl.exp(x - m)
    c = tl.cumsum(e, 0)
    tl.store(out_ptr + offs, c / tl.sum(e, 0) + s + i, mask=offs < n)


@triton.jit
def waiting(flag_ptr, a_ptr, out_ptr):
    while tl.atomic_cas(flag_ptr, 0, 1) == 1:
        pass
    tl.store(out_ptr, tl.load(a_ptr))
    tl.atomic_xchg(flag_ptr, 0)


FLOAT, INT = "*fp32", "*i32"
SIGNATURES = {
    add: {"x_ptr": FLOAT, "y_ptr": FLOAT, "out_ptr": FLOAT, "n": "i32", "block": 128},
    histogram: {"x_ptr": INT, "bins_ptr": INT, "lock_ptr": INT, "n": "i32", "block": 128},
    moving: {"a_ptr": FLOAT, "b_ptr": FLOAT, "c_ptr": FLOAT, "k": "i32", "block": 128},
    swapped: {"a_ptr": FLOAT, "b_ptr": FLOAT, "k": "i32", "block": 128},
    chosen: {"a_ptr": FLOAT, "b_ptr": FLOAT, "out_ptr": FLOAT, "which": "i32", "block": 128},
    early: {"a_ptr": FLOAT, "out_ptr": FLOAT, "n": "i32", "block": 128},
    blocks: {"a_ptr": FLOAT, "out_ptr": FLOAT, "m": "i32", "n": "i32", "rows": 16, "columns": 16},
    descriptors: {"a_ptr": "*fp16", "out_ptr": "*fp16", "m": "i32", "n": "i32", "rows": 64, "columns": 64},
    host_descriptors: {"a_desc": "tensordesc<fp16[64,64]>", "o_desc": "tensordesc<fp16[64,64]>", "scale_ptr": "*fp16"},
    calling: {"a_ptr": FLOAT, "b_ptr": FLOAT, "out_ptr": FLOAT, "block": 128},
    pointers: {"table_ptr": "*i64", "out_ptr": FLOAT, "block": 128},
    assembly: {"a_ptr": FLOAT, "out_ptr": FLOAT, "block": 128},
    hidden_store: {"a_ptr": FLOAT, "out_ptr": FLOAT},
    summed: {"a_ptr": FLOAT, "out_ptr": FLOAT, "n": "i32", "block": 128},
    waiting: {"flag_ptr": INT, "a_ptr": FLOAT, "out_ptr": FLOAT},
}


def main(folder: Path) -> None:
    """Write the TTIR text of each kernel for Hopper."""
    for kernel, signature in SIGNATURES.items():
        constants = {(number,): value for number, value in enumerate(signature.values()) if isinstance(value, int)}
        kinds = {name: "constexpr" if isinstance(value, int) else value for name, value in signature.items()}
        compiled = triton.compile(ASTSource(kernel, kinds, constexprs=constants), target=GPUTarget("cuda", 90, 32))
        (folder / f"{kernel.__name__}.ttir").write_text(compiled.asm["ttir"].replace(f"{Path(__file__).parent}/", ""))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
