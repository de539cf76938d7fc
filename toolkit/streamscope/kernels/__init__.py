"""Kernels made at run time: CUDA sources, their specialization for arrays, NVRTC."""
