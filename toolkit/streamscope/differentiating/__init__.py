"""Gradients of programs, by reverse mode."""
