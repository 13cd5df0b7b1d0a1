"""The session socket: access control, and the messages of a connection."""
