"""`dlcpctl verify`: the promises on real hosts, against a reference."""
