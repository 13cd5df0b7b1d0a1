"""The kinds of switches."""
