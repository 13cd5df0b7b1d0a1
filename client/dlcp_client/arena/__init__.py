"""Memory shared with the engine, as tensors."""
