"""What the bytes of a tensor are worth: element types, reduction, energy, error feedback. Pure."""
