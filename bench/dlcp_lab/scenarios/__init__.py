"""`dlcpctl bench drop|priority|...`: effect of each network mechanism, on emulated fabrics."""
