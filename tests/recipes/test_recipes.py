"""Each recipe with two ranks: exact, and over the backend, its weights are those over Gloo.

Skipped by name where its library is not installed: extra `recipes`.
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.pages import ROOT

RECIPES: Final = ROOT / "examples" / "recipes"
SEVERAL: Final = Path(__file__).with_name("several.py")
LIMIT: Final = 240.0  # seconds for all runs of a recipe; they take 10 to 20 on a free machine
OFFLINE: Final = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


def case(recipe: str, *runs: str, needs: tuple[str, ...] = (), name: str = "") -> Any:
    return pytest.param(recipe, runs, needs, id=name or recipe)


HUGGING_FACE: Final = ("transformers", "accelerate", "peft")
CASES: Final = [
    case(
        "train_transformers", "gloo --output a", "exact --output b", "backend --output c",
        "exact --output b --resume b/checkpoint-12", needs=HUGGING_FACE,
    ),
    case(
        "train_transformers", "gloo --output a --lora", "exact --output b --lora",
        needs=HUGGING_FACE, name="train_transformers_lora",
    ),
    case("train_accelerate", "gloo", "exact", "backend", needs=("accelerate",)),
    case("train_lightning", "gloo", "exact", "backend", needs=("pytorch_lightning",)),
    case(
        "train_fsdp2", "gloo --checkpoint a", "exact --checkpoint b", "backend --checkpoint c",
        "exact --checkpoint a --resume",
    ),
    case("train_restarts", "gloo --checkpoint a.pt", "exact --checkpoint b.pt"),
]  # fmt: skip


def printed(recipe: str, runs: tuple[str, ...], folder: Path) -> list[str]:
    """By rank 0 in each run, in `folder`."""
    process = subprocess.Popen(
        [sys.executable, str(SEVERAL), str(RECIPES / f"{recipe}.py"), str(folder), *runs],
        cwd=folder,
        env={**os.environ, **OFFLINE},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _, said = process.communicate(timeout=LIMIT)
    finally:
        if process.poll() is None:  # with its ranks
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, said[-8000:]
    return [(folder / f"{number}.0").read_text() for number in range(len(runs))]


@pytest.mark.parametrize(("recipe", "runs", "needs"), CASES)
def test_weights_are_those_over_gloo(
    recipe: str, runs: tuple[str, ...], needs: tuple[str, ...], tmp_path: Path
) -> None:
    for library in needs:
        pytest.importorskip(library)
    texts = printed(recipe, runs, tmp_path)
    weights = [re.findall(r"^weights (\w{64})$", text, re.MULTILINE) for text in texts]
    assert len(weights[0]) == 1 and weights == [weights[0]] * len(runs), texts
    for run, text in zip(runs, texts, strict=True):
        assert (" of each through dlcpd; " in text) == run.startswith("exact"), text
