"""A one-device program on all ranks: a few annotated tensors decide how the others are divided."""
