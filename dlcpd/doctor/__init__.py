"""`dlcpctl doctor`: finds problems of this host, and of the network to its peers.

Each check is two functions: `look_at_...` reads facts from the kernel, files or sockets;
`judge_...` makes rows of them, and is pure.
"""
