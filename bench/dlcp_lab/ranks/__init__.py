"""Hosts and rank processes on this machine: started, synchronised, always ended."""
