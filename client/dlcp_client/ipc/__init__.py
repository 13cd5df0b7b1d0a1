"""The daemon as a client sees it: handshake, lane, and a daemon of one's own."""
