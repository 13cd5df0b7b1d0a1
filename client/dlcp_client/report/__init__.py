"""The cost of a training's communication: totals, loggers, and a summary."""
