"""Arithmetic on the bytes of tensors: element types, reduction, energy, error feedback. Pure."""
