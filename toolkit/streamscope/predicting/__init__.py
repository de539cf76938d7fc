"""Predictions: a trace under another engine, or with other kernels."""
