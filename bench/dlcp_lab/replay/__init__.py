"""`dlcpctl bench step`: replays published networks with gradients of their real sizes."""
