"""CUDA expressions: read, checked without a compiler, and evaluated in NumPy."""
