"""Tasks of the demo: data that every machine has, the same batches for every transport."""

import sysconfig
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional

from dlcp_lab.training.models import CONTEXT, VOCABULARY, CharacterNet, DigitNet

HELD_OUT: Final = 360  # digits held out for the accuracy: a fifth
TEXT_LIMIT: Final = 2_000_000  # characters of source; the demo uses a fraction of them
TEST_WINDOWS: Final = 32  # pieces of text, CONTEXT long, held out for the final loss
DIGIT_BATCH: Final = 32  # per rank
TEXT_BATCH: Final = 8  # per rank


class Task(ABC):
    """A model to train, its batches and its final score."""

    name: str
    score_name: str
    steps: int

    @abstractmethod
    def model(self) -> nn.Module:
        """A new model; its weights come from torch's global seed."""

    @abstractmethod
    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer: ...

    @abstractmethod
    def loss(self, model: nn.Module, step: int, rank: int) -> torch.Tensor:
        """Training loss of this rank's batch of this step: the same batch in every run."""

    @abstractmethod
    def score(self, model: nn.Module) -> float:
        """Score on held-out data."""


class Digits(Task):
    """Handwritten digits, from scikit-learn's own copy."""

    name, score_name = "digits CNN", "accuracy"
    steps = 80

    def __init__(self) -> None:
        from sklearn.datasets import load_digits  # noqa: PLC0415  # other tasks do not need it

        images, labels = load_digits(return_X_y=True)
        generator = torch.Generator().manual_seed(0)
        order = torch.randperm(len(labels), generator=generator)
        self.images = (torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16)[order]
        self.labels = torch.tensor(labels, dtype=torch.int64)[order]

    def model(self) -> nn.Module:
        return DigitNet()

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def loss(self, model: nn.Module, step: int, rank: int) -> torch.Tensor:
        chosen = HELD_OUT + _choice(len(self.labels) - HELD_OUT, DIGIT_BATCH, step, rank)
        return functional.cross_entropy(model(self.images[chosen]), self.labels[chosen])

    def score(self, model: nn.Module) -> float:
        guesses = model(self.images[:HELD_OUT]).argmax(1)
        return float((guesses == self.labels[:HELD_OUT]).float().mean())


class Source(Task):
    """The standard library's own source text, character by character."""

    name, score_name = "character transformer", "test loss"
    steps = 100

    def __init__(self) -> None:
        text = torch.tensor(list(source_text()), dtype=torch.int64)
        self.test, self.text = (
            text[: TEST_WINDOWS * CONTEXT + 1],
            text[TEST_WINDOWS * CONTEXT + 1 :],
        )

    def model(self) -> nn.Module:
        return CharacterNet()

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=1e-3)

    def loss(self, model: nn.Module, step: int, rank: int) -> torch.Tensor:
        starts = _choice(len(self.text) - CONTEXT - 1, TEXT_BATCH, step, rank)
        pieces = torch.stack([self.text[s : s + CONTEXT + 1] for s in starts.tolist()])
        return _guess(model, pieces[:, :-1], pieces[:, 1:])

    def score(self, model: nn.Module) -> float:
        pieces, following = self.test[:-1].view(-1, CONTEXT), self.test[1:].view(-1, CONTEXT)
        return float(_guess(model, pieces, following))


def source_text() -> bytes:
    """ASCII source of the standard library's top-level modules, in the order of their names."""
    out = bytearray()
    for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        out += bytes(byte for byte in file.read_bytes() if byte < VOCABULARY)
        if len(out) >= TEXT_LIMIT:
            break
    return bytes(out[:TEXT_LIMIT])


def _choice(population: int, count: int, step: int, rank: int) -> torch.Tensor:
    """Random positions, different for every step and rank, equal in every run."""
    generator = torch.Generator().manual_seed(step * 1009 + rank)
    return torch.randint(population, (count,), generator=generator)


def _guess(model: nn.Module, text: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    logits: Any = model(text)
    return functional.cross_entropy(logits.flatten(0, 1), following.flatten())


TASKS: Final[tuple[type[Task], ...]] = (Digits, Source)
