"""Measures and shows what dlcpd does: emulated fabrics, benchmarks, demo and verification."""
