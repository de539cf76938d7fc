"""Graphs: what a device captured, as a list of nodes, as DOT and as a layout; and which operations are in which graph."""
