"""`dlcpctl lab`: fabrics that stay until they are taken down."""
