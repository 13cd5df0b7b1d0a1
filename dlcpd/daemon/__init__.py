"""The control process: sessions of local clients, messages to peers, supervision of engines."""
