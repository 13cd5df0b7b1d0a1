"""Discovery of a path's properties: its routers and its MTU."""
