"""Cases checked against their reference, measured in turns; the engine that is fastest."""
