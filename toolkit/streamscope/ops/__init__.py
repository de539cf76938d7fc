"""Operators: shapes, NumPy reference, cost, and how they launch on CUDA."""
