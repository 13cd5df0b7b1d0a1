"""Control processes of other hosts: messages over ZeroMQ, keys, and membership."""
