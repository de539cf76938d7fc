"""Kernels made at run time: their CUDA sources, what fits them to arrays, and NVRTC, which compiles them."""
