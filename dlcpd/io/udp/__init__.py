"""A UDP socket as batches: sendmmsg and recvmmsg into arrays."""
