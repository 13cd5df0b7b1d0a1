"""What client, daemon and peers agree on. Standard library only; no I/O."""
