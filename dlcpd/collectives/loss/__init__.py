"""Bounded loss: segments that may be waived, residuals that are reapplied, and their records."""
