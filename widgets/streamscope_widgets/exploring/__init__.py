"""The explorer: a program, knobs, a picture that follows them, and runs to compare."""
