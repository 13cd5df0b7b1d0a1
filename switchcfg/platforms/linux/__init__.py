"""Platform Linux: software switches."""
