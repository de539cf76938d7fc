"""The tables of measured figures in docs/, by what they are of."""
