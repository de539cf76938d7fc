"""Element-wise kernels: their sources, and how they are fitted to arrays."""
