"""The command `dlcpctl`: inspects daemons, and finds the commands of other packages."""
