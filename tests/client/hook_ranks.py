"""What one rank does in a test of the hook's life: in a process of its own; plain values."""

import copy
import io
import logging
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
from torch import nn
from torch.distributed._composable.replicate import replicate
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

from dlcp_client import bounded, connect, cross_step, ddp
from dlcp_client.report import registered
from dlcp_client.session import Session
from dlcpd.contract.errors import DlcpError, SessionClosed
from tests.client.ddp_ranks import group, weights
from tests.client.real import TIMEOUT

WORDS: Final = 40


def net(*, sparse: bool = False) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Embedding(WORDS, 16, sparse=sparse), nn.Linear(16, 32), nn.Linear(32, 4)
    )


def data(rank: int, number: int) -> torch.Tensor:
    torch.manual_seed(100 * number + rank)
    return torch.randint(0, WORDS, (8, 3))


def train(model: nn.Module, sgd: torch.optim.Optimizer, rank: int, steps: range) -> None:
    for number in steps:
        model.zero_grad()
        model(data(rank, number)).square().mean().backward()
        sgd.step()


def sgd_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def plainly(rank: int, steps: int, **options: Any) -> torch.Tensor:
    """The weights of the same training by the framework."""
    model = DistributedDataParallel(net(**options))
    train(model, sgd_of(model), rank, range(steps))
    return weights(model)


def register(model: Any, sgd: Any, session: Session, *, crossing: bool) -> Any:
    if crossing:
        return cross_step.register(model, sgd, session=session)
    return ddp.register(model, session=session)


def saved_and_loaded(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded: nn.Module = torch.load(file, weights_only=False)
    return loaded


def averaged(model: nn.Module) -> nn.Module:
    made: nn.Module = AveragedModel(model).module
    return made


COPIERS: Final[dict[str, Callable[[nn.Module], nn.Module]]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),  # noqa: S301
    "torch.save": saved_and_loaded,
    "AveragedModel": averaged,
}


def copied(rank: int, store: str, crossing: bool) -> dict[str, Any]:
    """Copies of a model that is being trained, each trained a step, and registered."""
    with group(rank, store), connect(timeout=TIMEOUT) as session:
        model = DistributedDataParallel(net())
        sgd = sgd_of(model)
        handle = register(model, sgd, session, crossing=crossing)
        apart = {}
        for number, (name, make) in enumerate(COPIERS.items()):
            train(model, sgd, rank, range(number, number + 1))
            other = make(model)
            train(other, sgd_of(other), rank, range(number + 1, number + 2))
            apart[name] = float((weights(other) - plainly(rank, number + 2)).abs().max())
        again = register(other, sgd_of(other), session, crossing=crossing)
        train(other, sgd_of(other), rank, range(5, 6))
        before = again.ledger.operations
        again.close()
        spare = copy.deepcopy(handle)
        spare.close()
        try:
            said = spare.summary()
        except SessionClosed as exc:
            said = str(exc)
        train(model, sgd, rank, range(4, 5))
        handle.close()
        return {
            "apart": apart,
            "itself": float((weights(model) - plainly(rank, 5)).abs().max()),
            "operations": before,
            "said": said,
        }


def closed(rank: int, store: str, crossing: bool) -> dict[str, Any]:
    """A model that goes on after close(), and is registered again, twice at once too."""
    with group(rank, store), connect(timeout=TIMEOUT) as session:
        model = DistributedDataParallel(net())
        sgd = sgd_of(model)
        handle = register(model, sgd, session, crossing=crossing)
        train(model, sgd, rank, range(2))
        try:
            register(model, sgd, session, crossing=crossing)
            twice = ""
        except DlcpError as exc:
            twice = str(exc)
        handle.close()
        sent = [session.ledger.operations]
        train(model, sgd, rank, range(2, 4))
        sent.append(session.ledger.operations)
        handle = register(model, sgd, session, crossing=crossing)
        train(model, sgd, rank, range(4, 6))
        sent.append(session.ledger.operations)
        handle.close()
        handle.close()
        return {
            "apart": float((weights(model) - plainly(rank, 6)).abs().max()),
            "twice": twice,
            "sent": sent,
        }


class Lines(logging.Handler):
    """What is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def sparse(rank: int, store: str) -> dict[str, Any]:
    """Sparse gradients beside dense ones."""
    lines = Lines()
    logging.getLogger("dlcp_client").addHandler(lines)
    with group(rank, store), connect(timeout=TIMEOUT) as session:
        model = DistributedDataParallel(net(sparse=True))
        handle = ddp.register(model, session=session)
        train(model, sgd_of(model), rank, range(4))
        steps = handle.step
        handle.close()
        apart = float((weights(model) - plainly(rank, 4, sparse=True)).abs().max())
    told = [text for text in lines.texts if "sparse" in text]
    return {"apart": apart, "told": told, "steps": steps, "operations": session.ledger.operations}


def taken(rank: int, store: str) -> dict[str, Any]:
    """Other models than DDP's own: composable, compiled."""
    out: dict[str, Any] = {}
    with group(rank, store), connect(timeout=TIMEOUT) as session:
        model: Any = replicate(net())
        handle = ddp.register(model, session=session)
        train(model, sgd_of(model), rank, range(3))
        out["replicated"] = float((weights(model) - plainly(rank, 3)).abs().max())
        out["steps"] = handle.step
        handle.close()
        for crossing in (False, True):
            inside = DistributedDataParallel(net())
            model = torch.compile(inside, backend="eager")
            sgd = sgd_of(model)
            handle = register(model, sgd, session, crossing=crossing)
            train(model, sgd, rank, range(3))
            out[f"compiled, {crossing}"] = float((weights(inside) - plainly(rank, 3)).abs().max())
            handle.close()
    return out


def unforeseen(rank: int, store: str) -> str:
    """A bug in the hook."""

    def bug(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("a bug")

    with group(rank, store), connect(timeout=TIMEOUT) as session:
        model = DistributedDataParallel(net())
        handle = ddp.register(model, session=session)
        handle.rules.request = bug  # type: ignore[method-assign]
        try:
            model(data(rank, 0)).square().mean().backward()
        except DlcpError as exc:
            return str(exc)
    return ""


def alone(rank: int, store: str) -> dict[str, Any]:
    """Rank 0 alone asks for what is for all ranks, twice; then all ask."""
    said = []
    with group(rank, store), connect(timeout=TIMEOUT) as session:
        model = DistributedDataParallel(nn.Sequential(nn.Linear(1024, 1024, bias=False)))
        sgd = sgd_of(model)
        handle = ddp.register(model, bounded(0.01), session=session, warmup_steps=2)
        registered.DEADLINE = 1.0  # type: ignore[attr-defined]
        for number in range(6):
            if number in (3, 4) and not rank:
                for call in (partial(handle.summary, all_ranks=True), handle.state_dict):
                    try:
                        call()
                    except DlcpError as exc:
                        said.append(str(exc))
            torch.manual_seed(number)
            model.zero_grad()
            model(torch.randn(4, 1024)).square().mean().backward()
            sgd.step()
        registered.DEADLINE = TIMEOUT  # type: ignore[attr-defined]
        text, state = handle.summary(all_ranks=True), handle.state_dict()
        handle.close()
    return {"said": said, "summary": text, "step": state["step"], "weights": weights(model).numpy()}
