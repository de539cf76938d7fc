"""Reduction kernels: their sources, and how a reduction is planned."""
