"""Comparing engines: the same program under each."""
