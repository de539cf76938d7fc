"""Programs: static lists of operations over variables, made by tracing a Python function."""
