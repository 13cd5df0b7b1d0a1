"""The paths of a flow: which live, how much each may carry and how fast, how large a datagram."""
