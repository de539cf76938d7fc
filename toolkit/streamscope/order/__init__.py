"""Who must wait for whom: clocks, hazards and the dependency graph, used by every engine.

The audit does not use it, on purpose: a checker must not share what it checks.
"""
