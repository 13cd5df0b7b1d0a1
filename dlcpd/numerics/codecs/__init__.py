"""Codecs: what is sent in place of float32 values. `codec_of` finds one by name."""
