"""The data path in C, where a compiler was at hand: see docs/datapath.md."""
