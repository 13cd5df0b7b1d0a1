"""The fabric as a whole: its links, equal treatment on both ends, and the order of changes."""
