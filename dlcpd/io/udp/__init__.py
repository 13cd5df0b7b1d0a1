"""A UDP socket in batches: sendmmsg and recvmmsg into arrays."""
