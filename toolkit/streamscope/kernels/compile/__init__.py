"""Compiling kernels: NVRTC, many sources at once, and the compiled kernels that are kept."""
