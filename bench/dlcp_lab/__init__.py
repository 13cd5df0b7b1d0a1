"""Emulated fabrics, benchmarks, demo and verification of dlcpd."""
