"""Drivers that connect to devices: one interface, one module per protocol."""
