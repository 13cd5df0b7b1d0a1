"""The data path in C, used if a compiler was at hand: see docs/datapath.md."""
