"""Parallelising: a function handed back as a callable whose kernels run side by side wherever they may."""
