"""One transfer, from both ends: its segments, their order, what is missing, when to stop."""
