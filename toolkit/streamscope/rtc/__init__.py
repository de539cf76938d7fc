"""Run-time compilation: sources of kernels, and NVRTC."""
