"""`dlcpctl page`: a daemon's status for a browser, asked for as `top` asks."""
