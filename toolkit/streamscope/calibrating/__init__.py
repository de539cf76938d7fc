"""Measurements on one GPU that fit the cost model."""
