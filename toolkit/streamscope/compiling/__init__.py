"""Compiling ahead: warming, tuning, and compiling together against one by one."""
