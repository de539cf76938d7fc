"""Which engine to use: found by running the candidates, or predicted from measured costs."""
