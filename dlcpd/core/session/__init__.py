"""A rank among its peers: flows, streams of operations, messages, liveness."""
