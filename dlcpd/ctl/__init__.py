"""The command `dlcpctl`: inspect daemons, measure, verify and demonstrate them."""
