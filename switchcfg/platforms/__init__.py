"""Platforms: one kind of switch each, with its configuration language."""
