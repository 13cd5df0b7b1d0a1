"""Messages between the processes of one host. Client, control, engine and dlcpctl share it."""
