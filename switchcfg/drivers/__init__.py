"""How devices are reached: one interface, one module per protocol."""
