"""Recorders of times."""
