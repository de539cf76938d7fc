"""Choosing an engine: by measurement (`ss.best`), and by what this device's launches, graphs and streams cost (`ss.advise`)."""
