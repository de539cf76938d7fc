"""Fixtures of the operators' tests."""

from tests.ops.conftest import both, device, evaluate, slopes

__all__ = ["both", "device", "evaluate", "slopes"]
