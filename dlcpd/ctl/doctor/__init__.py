"""`dlcpctl doctor`: what of this host and of the way to its peers would disturb a training.

Each check is two functions: one looks (`look_at_...`: the kernel, files, sockets) and gives
plain facts, one judges them and is pure.
"""
