"""Predictions: what a trace would look like under another engine, or with other kernels."""
