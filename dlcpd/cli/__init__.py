"""Command lines: their grammar, commands of other packages, and output as text and JSON."""
