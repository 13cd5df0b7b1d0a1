"""Measurements: emulated networks, baselines and the programs that compare them. Not installed."""
