"""The sessions of this host, and their messages to clients, peers and engines."""
