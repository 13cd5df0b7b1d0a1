"""The two networks of the demo: small, but of several MB, so that buckets have several chunks."""

from typing import Final

import torch
from torch import nn
from torch.nn import functional

CLASSES: Final = 10  # digits
VOCABULARY: Final = 128  # ASCII
CONTEXT: Final = 64  # characters of context of the transformer
WIDTH: Final = 128
HEADS: Final = 4
LAYERS: Final = 4


class DigitNet(nn.Module):
    """A convolutional network for 8x8 grey images; 3.3 MB of parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.classes = nn.Sequential(
            nn.Linear(64 * 4 * 4, 512),
            nn.ReLU(),
            nn.Linear(512, 512),
            nn.ReLU(),
            nn.Linear(512, CLASSES),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images (n, 1, 8, 8) to logits (n, CLASSES)."""
        logits: torch.Tensor = self.classes(self.features(images))
        return logits


class Block(nn.Module):
    """One layer of the transformer, with normalisation before each part."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(WIDTH)
        self.to_heads = nn.Linear(WIDTH, 3 * WIDTH)
        self.from_heads = nn.Linear(WIDTH, WIDTH)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, length, WIDTH) to (n, length, WIDTH)."""
        n, length, _ = x.shape
        heads = self.to_heads(self.before_attention(x))
        query, key, value = heads.view(n, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.from_heads(seen.transpose(1, 2).reshape(n, length, WIDTH))
        out: torch.Tensor = x + self.feed_forward(x)
        return out


class CharacterNet(nn.Module):
    """A transformer that predicts the next character; 3.4 MB of parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.characters = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.last = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Characters (n, length) to logits (n, length, VOCABULARY)."""
        places = self.places(torch.arange(text.shape[1]))
        logits: torch.Tensor = self.last(self.blocks(self.characters(text) + places))
        return logits
