"""Sweep of group counts on threads and processes."""
import sys, time, os, json, heapq
sys.path.insert(0, "toolkit")
from concurrent.futures import ThreadPoolExecutor, ProcessPoolExecutor
import multiprocessing as mp
from cuda.bindings import nvrtc
def comp(code):
    a = time.perf_counter()
    _, p = nvrtc.nvrtcCreateProgram(code.encode(), b"a.cu", 0, [], [])
    o = [b"--gpu-architecture=sm_90", b"--std=c++17"]
    (s,) = nvrtc.nvrtcCompileProgram(p, len(o), o)
    assert int(s) == 0, s
    _, n = nvrtc.nvrtcGetCUBINSize(p); b = bytes(n); nvrtc.nvrtcGetCUBIN(p, b); nvrtc.nvrtcDestroyProgram(p)
    return time.perf_counter() - a
def warmup(_): return comp('extern "C" __global__ void e(){}')
def grouped(srcs, k):
    return ["\n".join(f"namespace n{i} {{\n{c}\n}}" for i, c in enumerate(srcs[j::k])) for j in range(k)]
if __name__ == "__main__":
    import streamscope as ss
    from streamscope.ops.elementwise import OPERATORS
    from streamscope.errors import ProgramError
    srcs = []
    for op in OPERATORS.values():
        for dt in ("float32", "float16", "float64", "int32"):
            try: srcs.append(op.source(*[dt] * len(op.definition.operands)))
            except ProgramError: pass
    import random
    random.Random(0).shuffle(srcs); srcs = srcs[:128]
    W = len(os.sched_getaffinity(0)); print("cores", W)
    warmup(0)
    t = time.perf_counter(); each = [comp(s) for s in srcs]; print("one by one", round(time.perf_counter() - t, 2), "min/med/max", min(each), sorted(each)[64], max(each), flush=True)
    pool = ThreadPoolExecutor(W)
    t = time.perf_counter(); list(pool.map(comp, srcs)); print("one each, threads", round(time.perf_counter() - t, 2), flush=True)
    for n in (8, 16, 32, 128):
        for k in (1, 2, 4, 8, 16, 32):
            if k > n or (n==128 and k < 4): continue
            g = grouped(srcs[:n], k)
            t = time.perf_counter(); r = list(pool.map(comp, g)); w = time.perf_counter() - t
            print("threads n", n, "groups", k, "wall", round(w, 3), "max group", round(max(r), 3), "sum", round(sum(r), 2), flush=True)
    t = time.perf_counter()
    with ProcessPoolExecutor(W, mp.get_context("spawn")) as pp:
        r = list(pp.map(comp, grouped(srcs, W))); print("processes cold", round(time.perf_counter() - t, 3))
        for k in (W, 2*W):
            t = time.perf_counter(); r = list(pp.map(comp, grouped(srcs, k))); print("processes warm", k, round(time.perf_counter() - t, 3), flush=True)
        t = time.perf_counter(); r = list(pp.map(comp, srcs)); print("processes one each", round(time.perf_counter() - t, 3), flush=True)
