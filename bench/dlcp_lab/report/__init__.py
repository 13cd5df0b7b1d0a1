"""Formats results: amounts, statistics, verdicts."""
