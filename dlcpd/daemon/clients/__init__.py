"""The session socket: who may connect, and what is said on a connection."""
