"""`dlcpd server`: the parameter server. docs/parameter-server.md."""
