"""`dlcpctl bench step`: published networks replayed with gradients of their real sizes."""
