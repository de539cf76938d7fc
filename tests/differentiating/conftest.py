"""Fixtures of the operators' tests."""

from tests.ops.conftest import evaluate, slopes

__all__ = ["evaluate", "slopes"]
