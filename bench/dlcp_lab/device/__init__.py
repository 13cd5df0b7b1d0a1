"""A stand-in for a CUDA device, for tests and benchmarks on machines without a GPU."""
