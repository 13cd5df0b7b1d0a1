"""The control process: sessions of local clients, peers' controls, the engine's keeper."""
