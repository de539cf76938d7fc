"""The audit: orders that a plan keeps, orders that its operations need, and accesses that operators do not declare."""
