"""What `fused` refuses, by name, and what a loop may do: one rank with a real daemon."""

import gc
import math
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._C._distributed_c10d import HashStore
from torch.amp import GradScaler
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, Adam, AdamW, RMSprop

from dlcp_client import DlcpError, Session, connect, exact, fused
from dlcp_client.fused.suitability import trained
from dlcpd.contract.errors import BadConfig, BadPolicy, BadTensor, SessionClosed
from dlcpd.contract.policy import EXACT
from tests.client.fused_ranks import same, weights
from tests.client.real import TIMEOUT

pytestmark = pytest.mark.processes

NO_NORMS: list[Any] = [None, "a", [], -1.0, math.nan]
NO_POLICIES: list[Any] = [None, 5, "exact", {}]
NO_SAVED: list[Any] = [None, 5, {}, {"state": {}}, {"state": [1], "param_groups": []}]


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    torch.set_num_threads(1)  # small tensors: threads would wait for each other
    with connect(HashStore(), 0, 1, timeout=TIMEOUT, arena_bytes=16 << 20) as made:
        yield made


def network() -> nn.Sequential:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(9, 33), nn.ReLU(), nn.Linear(33, 3))


def backward(net: nn.Module, number: int) -> None:
    torch.manual_seed(number)
    net(torch.randn(5, 9)).square().sum().backward()


class Registered:
    """A model, the same model without dlcpd, and their optimizers."""

    def __init__(self, session: Session) -> None:
        self.net, self.plain = network(), network()
        self.optimizer = Adam(self.net.parameters(), lr=0.01, fused=True)
        self.reference = Adam(self.plain.parameters(), lr=0.01, fused=True)
        self.handle = fused.register(self.net, self.optimizer, session=session)

    def step(self, number: int) -> None:
        for net, optimizer in ((self.net, self.optimizer), (self.plain, self.reference)):
            optimizer.zero_grad()
            backward(net, number)
            optimizer.step()

    @property
    def equal(self) -> bool:
        state = self.optimizer.state_dict()["state"], self.reference.state_dict()["state"]
        return torch.equal(weights(self.net), weights(self.plain)) and same(*state)


@pytest.fixture
def made(session: Session) -> Iterator[Registered]:
    registered = Registered(session)
    yield registered
    registered.handle.close()


def test_a_loop_may_accumulate_and_use_a_closure(made: Registered) -> None:
    for number in range(3):
        for net, optimizer in ((made.net, made.optimizer), (made.plain, made.reference)):
            optimizer.zero_grad()
            if net is made.net:
                with made.handle.no_sync():
                    backward(net, 10 * number)
            else:
                backward(net, 10 * number)
            backward(net, 10 * number + 1)
            optimizer.step()
    assert made.equal

    def closure(net: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[], float]:
        def call() -> float:
            optimizer.zero_grad()
            backward(net, 99)
            return 5.0

        return call

    assert made.optimizer.step(closure(made.net, made.optimizer)) == 5.0
    made.reference.step(closure(made.plain, made.reference))
    assert made.equal


def test_a_step_may_be_skipped(made: Registered) -> None:
    made.step(1)
    made.optimizer.zero_grad()
    backward(made.net, 2)
    made.handle.discard()
    assert made.equal
    made.step(3)
    assert made.equal


def test_a_scaler_skips_a_step_that_is_not_finite(session: Session) -> None:
    """And needs to be given: else it would change gradients that no update reads."""
    net, scaler = network(), GradScaler("cpu", 1024.0)
    optimizer = Adam(net.parameters(), lr=0.01, fused=True)
    with closing(fused.register(net, optimizer, session=session, scaler=scaler)) as handle:
        for factor, skipped in ((1.0, False), (math.inf, True), (1.0, False)):
            before = weights(net)
            optimizer.zero_grad()
            scaler.scale(factor * net(torch.ones(5, 9)).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            assert torch.equal(weights(net), before) == skipped
        assert scaler.get_scale() == 512.0
        other = network()
        with pytest.raises(BadConfig, match="give each its own GradScaler"):
            fused.register(other, Adam(other.parameters()), session=session, scaler=scaler)
        assert handle.state_bytes == 2 * weights(net).nbytes
    assert optimizer._step_supports_amp_scaling is True  # noqa: SLF001  # torch's
    assert vars(scaler).keys() & {"step", "_unscale_grads_"} == set()
    with closing(fused.register(other, Adam(other.parameters(), fused=True), session=session)):
        pass


def test_updates_within_the_backward_pass(session: Session) -> None:
    net, plain = network(), network()
    optimizer, reference = (AdamW(each.parameters(), lr=0.01, fused=True) for each in (net, plain))
    with closing(fused.register(net, optimizer, session=session, eager=True)) as handle:
        for number in range(3):
            backward(net, number)
            with pytest.raises(BadConfig, match=r"discard\(\): eager=True updates within"):
                handle.discard()
            with pytest.raises(BadConfig, match=r"clip_grad_norm_\(\): eager=True updates within"):
                handle.clip_grad_norm_(1.0)
            optimizer.step()
            backward(plain, number)
            reference.step()
            optimizer.zero_grad()
            reference.zero_grad()
        assert torch.equal(weights(net), weights(plain))
    with pytest.raises(BadConfig, match="eager=True updates before a scaler has seen"):
        fused.register(net, AdamW(net.parameters()), eager=True, scaler=GradScaler("cpu"))
    with pytest.raises(BadConfig, match="eager=True updates before LAMB has the norms"):
        fused.register(net, fused.LAMB(net.parameters(), kernel="eager"), eager=True)


def test_clipping_is_that_of_torch(made: Registered) -> None:
    for number, order in enumerate((2.0, math.inf, 1.0, 3.0)):
        made.optimizer.zero_grad()
        made.reference.zero_grad()
        backward(made.net, number)
        backward(made.plain, number)
        norm = made.handle.clip_grad_norm_(0.1, order)
        expected = nn.utils.clip_grad_norm_(made.plain.parameters(), 0.1, order)
        torch.testing.assert_close(norm, expected, rtol=1e-6, atol=0.0)
        made.handle.clip_grad_value_(0.01)
        nn.utils.clip_grad_value_(made.plain.parameters(), 0.01)
        made.optimizer.step()
        made.reference.step()
    torch.testing.assert_close(weights(made.net), weights(made.plain), rtol=1e-5, atol=1e-6)
    backward(made.net, 1)
    for most in NO_NORMS:
        with pytest.raises(BadConfig, match="max_norm"):
            made.handle.clip_grad_norm_(most)
    with pytest.raises(BadConfig, match="norm_type -1: give a number above 0"):
        made.handle.clip_grad_norm_(0.1, -1)
    made.optimizer.zero_grad(set_to_none=False)
    made.handle.discard()
    made.net.get_parameter("0.weight").grad = torch.full((33, 9), math.nan)
    backward(made.net, 1)
    with pytest.raises(RuntimeError, match="cannot be clipped"):
        made.handle.clip_grad_norm_(0.1, error_if_nonfinite=True)
    made.handle.discard()


def test_many_steps_leave_nothing_behind(made: Registered) -> None:
    def counted() -> tuple[int, int]:
        gc.collect()
        return len(gc.get_objects()), len(list(Path("/proc/self/fd").iterdir()))

    for number in range(20):
        made.step(number)
    objects, descriptors = counted()
    for number in range(200):
        made.step(number)
    more, same_descriptors = counted()
    assert same_descriptors == descriptors
    assert more - objects < 100, "each step would leave an object at least"
    assert made.equal


def test_a_training_that_has_begun_is_taken_over(session: Session) -> None:
    net, plain = network(), network()
    optimizer, reference = (AdamW(each.parameters(), lr=0.01, fused=True) for each in (net, plain))
    handle = None
    for number in range(4):
        if number == 2:
            handle = fused.register(net, optimizer, session=session)
            assert not optimizer.state
            assert same(optimizer.state_dict(), reference.state_dict())
        for each, its in ((net, optimizer), (plain, reference)):
            its.zero_grad()
            backward(each, number)
            its.step()
    assert handle is not None
    handle.close()
    assert torch.equal(weights(net), weights(plain))
    assert same(optimizer.state_dict(), reference.state_dict())


def test_close_returns_everything(made: Registered) -> None:
    made.step(1)
    made.handle.close()
    made.step(2)
    assert made.equal
    made.handle.close()


def test_without_its_session_a_model_gets_its_parameters_back() -> None:
    with connect(HashStore(), 0, 1, timeout=TIMEOUT, arena_bytes=16 << 20) as lost:
        made = Registered(lost)
        made.step(1)
    with pytest.raises(SessionClosed):
        made.handle.close()
    assert torch.equal(weights(made.net), weights(made.plain))
    backward(made.net, 2)
    made.optimizer.step()
    assert not torch.equal(weights(made.net), weights(made.plain))
    assert made.optimizer.state[made.net.get_parameter("0.weight")]["step"] == 1, "a state anew"


@pytest.mark.parametrize(
    ("between", "text"),
    [
        (lambda net: backward(net, 5), "a second backward pass without step"),
        (
            lambda net: nn.utils.clip_grad_norm_(net.parameters(), 0.1),
            r"use clip_grad_norm_\(\) of the handle, give scaler= to fused",
        ),
        (lambda net: net.zero_grad(), "was changed after backward"),
    ],
)
def test_what_would_be_wrong_is_refused_and_loses_nothing(
    made: Registered, between: Callable[[nn.Module], Any], text: str
) -> None:
    made.step(1)
    made.optimizer.zero_grad()
    backward(made.net, 2)

    def go_on() -> None:
        between(made.net)
        made.optimizer.step()

    with pytest.raises(BadConfig, match=text):
        go_on()
    made.handle.discard()
    assert made.equal
    made.step(3)
    assert made.equal


def test_a_parameter_that_was_moved_is_named(made: Registered) -> None:
    weight = made.net.get_parameter("0.weight")
    inside = weight.data
    backward(made.net, 1)
    weight.data = inside.clone()
    with pytest.raises(BadConfig, match=r"'0\.weight' has other memory"):
        made.optimizer.step()
    weight.data = inside
    made.handle.discard()
    made.step(2)
    assert made.equal


def test_a_parameter_without_a_gradient_is_named(made: Registered) -> None:
    made.net[0].requires_grad_(False)
    backward(made.net, 1)
    with pytest.raises(BadConfig, match=r"without a gradient of '0\.bias', '0\.weight'"):
        made.optimizer.step()
    made.net[0].requires_grad_(True)


def test_the_state_of_another_model_is_refused(made: Registered) -> None:
    made.step(1)
    other = nn.Sequential(nn.Linear(9, 5), nn.Linear(5, 3))
    optimizer = Adam(other.parameters())
    other(torch.randn(5, 9)).sum().backward()
    optimizer.step()
    with pytest.raises(BadConfig, match=r"a parameter of shape .* needs exp_avg, exp_avg_sq"):
        made.optimizer.load_state_dict(optimizer.state_dict())
    saved = made.optimizer.state_dict()
    for wrong in ({"step": "a"}, {"exp_avg": None}, {"exp_avg": torch.ones(33, 9, device="meta")}):
        state = {**saved["state"], 0: {**saved["state"][0], **wrong}}
        with pytest.raises(BadConfig, match=r"needs exp_avg, exp_avg_sq .* and a number `step`"):
            made.optimizer.load_state_dict({**saved, "state": state})
    for given in NO_SAVED:
        with pytest.raises(BadConfig, match="not the state_dict of an optimizer"):
            made.optimizer.load_state_dict(given)
    made.optimizer.load_state_dict(saved)
    made.step(2)
    assert made.equal


def test_no_parameter_is_added(made: Registered) -> None:
    with pytest.raises(BadConfig, match="close the handle, then add"):
        made.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(3))]})


def test_a_model_is_registered_once(made: Registered, session: Session) -> None:
    with pytest.raises(BadConfig, match=r"'0\.weight' is registered already"):
        fused.register(made.net, Adam(made.net.parameters()), session=session)


def test_a_parameter_that_two_models_share_is_registered_once(
    made: Registered, session: Session
) -> None:
    """And the second model is as before: it trains when the first registration has ended."""
    other = nn.Sequential(made.net[0], nn.Linear(33, 2))
    optimizer = Adam(other.parameters(), fused=True)
    with pytest.raises(BadConfig, match=r"'0\.weight' is registered already: close that"):
        fused.register(other, optimizer, session=session)
    made.step(1)
    assert made.equal
    made.handle.close()
    with closing(fused.register(other, optimizer, session=session)):
        other(torch.ones(1, 9)).sum().backward()
        optimizer.step()


def test_a_sparse_gradient_is_named(session: Session) -> None:
    net = nn.Sequential(nn.Embedding(5, 3, sparse=True), nn.Linear(3, 1))
    optimizer = SGD(net.parameters(), lr=0.1)
    with closing(fused.register(net, optimizer, session=session)) as handle:
        with pytest.raises(BadTensor, match=r"the gradient of '0\.weight' is sparse: set sparse="):
            net(torch.tensor([1])).sum().backward()
        handle.session.world.barrier().wait()  # the session goes on


class Buffered(nn.Parameter):
    """A class of a library that stores parameters in its own way."""


def transpose(weight: torch.Tensor) -> None:
    weight.data = weight.t().contiguous().t()


def refused(
    kind: type[DlcpError],
    text: str,
    change: Callable[[nn.Sequential], Any] = lambda _: None,
    make: Callable[[nn.Sequential], Any] = lambda net: SGD(net.parameters(), lr=0.1),
    **more: Any,
) -> Any:
    return pytest.param(kind, text, change, make, more, id=text)


@pytest.mark.parametrize(
    ("kind", "text", "change", "make", "more"),
    [
        refused(
            BadConfig,
            "does not know torch.optim.rmsprop.RMSprop: use SGD, Adam, AdamW",
            make=lambda net: RMSprop(net.parameters()),
        ),
        refused(
            BadConfig,
            "does not know .*Mine",
            make=lambda net: type("Mine", (Adam,), {})(net.parameters()),
        ),
        refused(
            BadConfig,
            r"does not support AdamW\(differentiable=True\)",
            make=lambda net: AdamW(net.parameters(), differentiable=True),
        ),
        refused(
            BadConfig,
            r"does not support Adam\(capturable=True\)",
            make=lambda net: Adam(net.parameters(), capturable=True),
        ),
        refused(
            BadConfig,
            "lacks parameter '2.weight'",
            make=lambda net: SGD(net[0].parameters(), lr=0.1),
        ),
        refused(
            BadConfig,
            "has 2 parameters that the model does not",
            make=lambda net: SGD([*net.parameters(), *nn.Linear(2, 2).parameters()], lr=0.1),
        ),
        refused(BadConfig, "no parameter to train", lambda net: net.requires_grad_(False)),
        refused(
            BadTensor,
            "'0.weight' is torch.float16: fused updates float32 and float64",
            lambda net: net.half(),
        ),
        refused(BadTensor, "'0.weight' is on meta", lambda net: net.to("meta")),
        refused(
            BadConfig,
            "module '0' is scripted",
            lambda net: net.__setitem__(0, torch.jit.script(nn.Linear(9, 33))),
        ),
        refused(
            BadTensor,
            "'0.weight' has the class Buffered",
            lambda net: setattr(net.get_parameter("0.weight"), "__class__", Buffered),
        ),
        refused(
            BadTensor,
            "'0.weight' is not contiguous",
            lambda net: transpose(net.get_parameter("0.weight")),
        ),
        refused(BadPolicy, "no codec 'bf16'", policy=exact(codec="bf16")),
    ],
)
def test_what_is_not_supported_is_named(
    kind: type[DlcpError],
    text: str,
    change: Callable[[nn.Sequential], Any],
    make: Callable[[nn.Sequential], Any],
    more: dict[str, Any],
) -> None:
    net = network()
    change(net)
    with pytest.raises(kind, match=text):
        trained(net, make(net), more.get("policy", EXACT))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        *(({"policy": one}, "policy .*: write exact") for one in NO_POLICIES),
        *(({"session": one}, "session=.* is not valid: give what connect") for one in (5, "a")),
        *(
            ({"warmup_steps": one}, "warmup_steps=.* is not valid: use a whole number, 0 or more")
            for one in (None, 1.5, "2", True, -1, math.nan)
        ),
        *(
            ({name: one}, f"{name}=.* is not valid: use True or False")
            for name in ("eager", "tune")
            for one in (None, 5, "no")
        ),
        *(({"scaler": one}, "is not a GradScaler") for one in (5, "a", True)),
        *(({"where": one}, 'where=.*: give "host"') for one in (None, 5, "cuda", True)),
    ],
)
def test_mistaken_arguments_are_named(session: Session, given: dict[str, Any], said: str) -> None:
    net = network()
    arguments: dict[str, Any] = {"session": session} | given
    with pytest.raises((BadConfig, BadPolicy), match=said):
        fused.register(net, SGD(net.parameters(), lr=0.1), **arguments)


def test_models_and_optimizers_in_use_are_refused() -> None:
    net = network()
    optimizer = Adam(net.parameters())
    hooked = DistributedDataParallel.__new__(DistributedDataParallel)
    vars(hooked)["_comm_hooks"] = [lambda *_: None]
    with pytest.raises(BadConfig, match="has a communication hook, which fused would not call"):
        trained(hooked, optimizer, EXACT)
    with pytest.raises(BadConfig, match="this is a int"):
        trained(3, optimizer, EXACT)
    hook = optimizer.register_step_pre_hook(lambda *_: None)
    with pytest.raises(BadConfig, match="has step hooks"):
        trained(net, optimizer, EXACT)
    hook.remove()
