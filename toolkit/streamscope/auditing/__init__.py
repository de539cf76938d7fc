"""The audit: which orders a plan keeps, which ones its operations need, and what operators touch besides what they declare."""
