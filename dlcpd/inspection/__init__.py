"""Requests to a running daemon, over its session socket."""
