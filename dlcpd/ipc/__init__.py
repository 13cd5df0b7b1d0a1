"""IPC between the processes of a host: packets, sockets, folders, signals, memory limits."""
