"""Types and rules that client, daemon and peers share. Standard library only; no I/O."""
