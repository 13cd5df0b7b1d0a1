"""`dlcpctl bench drop|priority|...`: what the network awareness is worth, on emulated fabrics."""
