"""Kernels of NVIDIA's libraries: cuBLAS and cuDNN."""
