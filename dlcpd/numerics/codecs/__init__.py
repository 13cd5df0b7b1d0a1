"""Codecs: encodings of float32 values for the network. `codec_of` finds one by name."""
