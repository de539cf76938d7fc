"""Comparing engines: the same program under each, and what came of it."""
