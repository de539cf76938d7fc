"""Recorders: what notes the times."""
