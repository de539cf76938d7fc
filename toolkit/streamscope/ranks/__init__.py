"""Many traces of one job: its ranks, on one clock."""
