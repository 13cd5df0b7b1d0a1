"""What is asked of the network itself: the routers of a path, and its MTU."""
