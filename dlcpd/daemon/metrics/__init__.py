"""Metrics for Prometheus: their definitions, their values, and the port that serves them."""
