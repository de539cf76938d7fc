"""Who must wait for whom: clocks, hazards and the dependency graph, used by every engine."""
