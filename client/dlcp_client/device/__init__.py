"""Tensors of accelerators: copies to and from the arena that overlap the network."""
