"""What Prometheus scrapes: which metrics there are, their values, and the port that serves them."""
