"""Capturing: a program made of any code that launches CUDA work, by stream capture."""
