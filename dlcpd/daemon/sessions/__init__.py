"""The sessions of this host, and what their clients, peers and engine are told."""
