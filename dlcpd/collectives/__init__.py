"""Runs schedules over the transport, and accounts for bounded loss. Pure."""
