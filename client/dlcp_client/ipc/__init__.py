"""The client's side of the daemon: handshake, lanes, and a private daemon."""
