"""Hosts and rank processes on this machine: started, kept in step, always ended."""
