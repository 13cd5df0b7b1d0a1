"""`dlcpctl report`: results of a training or a benchmark, as one HTML file."""
