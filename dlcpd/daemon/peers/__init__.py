"""The controls of other hosts: messages over ZeroMQ, keys, and who has joined."""
