"""Bytes of the protocol: headers, control bodies, bitmaps, and batches of datagrams."""
