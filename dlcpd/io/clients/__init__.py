"""The clients of the engine: their lanes, their memory, and their submissions."""
