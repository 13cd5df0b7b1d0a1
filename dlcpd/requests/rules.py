"""The settings of an engine that decide how it carries out a request."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rules:
    """Settings from `EngineConfig`, which documents them."""

    chunk_bytes: int
    digest_every: int
    layer_priority: bool = True
    drop_precedence: str = "both"
    bounded_loss: bool = True
