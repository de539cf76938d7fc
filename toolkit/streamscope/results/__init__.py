"""Results: one rule for how each is shown, written to files and turned into data. Low in the house, so that all rooms can use it."""
