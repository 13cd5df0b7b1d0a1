"""One transfer, at both ends: segments, their order, missing segments, the stop rule."""
