"""`dlcpctl verify`: checks the promises on real daemons, against a reference."""
