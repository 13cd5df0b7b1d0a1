"""Who waits for what: a world of one rank, whose far end the test plays and fills with 7s."""

import contextlib
import copy
import io
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

from dlcp_client import cross_step, exact
from dlcp_client.cross_step import CrossStepRegistration
from dlcp_client.cross_step.deferred_step import RecordedStep
from dlcp_client.hooks.lazy_parameters import LazyParameter
from dlcp_client.operations import submission
from dlcp_client.ranges import WAIT
from dlcpd.contract.errors import BadConfig, DeadlineExceeded, DlcpError, PeerLost
from tests.client.stand_in import StandIn, completed, until_polling

WIDTH = 600  # a layer's weight is a piece of its own
PIECES = 3  # one for each layer
BATCH = torch.ones(2, WIDTH)


class World:
    """A registered model of three layers and its far end."""

    def __init__(self) -> None:
        self.far = StandIn(world=1, arena_bytes=64 << 20)
        self.far.answering = False
        self.net: Any = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(PIECES)])
        self.ddp = DistributedDataParallel(self.net)
        self.sgd = torch.optim.SGD(self.ddp.parameters(), lr=0.5)
        self.handle: CrossStepRegistration = self.registered()
        self.begun = 0  # operations before the step under test
        self.warm_up()

    def registered(self, **changes: Any) -> CrossStepRegistration:
        return cross_step.register(
            self.ddp, self.sgd, exact(**changes), session=self.far.sessions[0]
        )

    def warm_up(self) -> None:
        """One step, whose gradients are discarded: DDP orders its buckets after it."""
        self.far.answering = True
        self.backward()
        self.ddp.zero_grad()
        self.begun = len(self.far.far[0].submits)
        self.far.answering = False

    def backward(self) -> None:
        self.ddp(BATCH).sum().backward()

    def answer(self, layer: int) -> None:
        """The average of a layer's gradients is 7. The last layer's were submitted first."""
        number = self.begun + PIECES - layer
        self.far.wait_for(number)
        self.far.far[0].tensor(number).fill_(7.0)
        self.far.far[0].send(completed(number))

    def answer_all(self) -> None:
        for layer in range(PIECES):
            self.answer(layer)

    def fail_all(self) -> None:
        for number in range(1, PIECES + 1):
            self.far.wait_for(self.begun + number)
            self.far.fail(self.begun + number, "peer_lost", "rank 1 is gone")


@pytest.fixture
def world(group_of_one: None) -> Iterator[World]:
    made = World()
    yield made
    made.far.close()
    with contextlib.suppress(DlcpError):  # of operations that the test left unanswered
        made.handle.close()


def values(world: World) -> list[torch.Tensor]:
    return [p.detach().clone() for p in world.net.parameters()]


def test_backward_and_step_wait_for_nothing(world: World) -> None:
    before = [(p.data_ptr(), p.shape) for p in world.net.parameters()]
    world.backward()
    world.sgd.step()
    world.sgd.zero_grad()
    assert {type(p) for p in world.net.parameters()} == {LazyParameter}
    assert [p.shape for p in world.net.parameters()] == [shape for _, shape in before]


def test_each_layer_waits_for_its_own(world: World) -> None:
    world.backward()
    world.sgd.step()
    ran = [threading.Event() for _ in range(PIECES)]
    for module, event in zip(world.net, ran, strict=True):
        module.register_forward_hook(lambda *_, event=event: event.set())
    thread = threading.Thread(target=lambda: world.ddp(BATCH))
    thread.start()
    for layer, event in enumerate(ran):
        assert thread.ident is not None
        until_polling(thread.ident)
        assert not event.is_set()
        world.answer(layer)
        assert event.wait(30)
    thread.join(30)
    assert {type(p) for p in world.net.parameters()} == {nn.Parameter}


def test_an_update_is_made_of_the_average(world: World) -> None:
    before = values(world)
    world.backward()
    world.sgd.step()
    world.answer_all()
    world.handle.synchronize()
    for old, parameter in zip(before, world.net.parameters(), strict=True):
        assert torch.equal(parameter, old - 0.5 * 7.0)
        assert bool((parameter.grad == 7.0).all())


def test_the_gradient_that_anybody_sees_is_the_average(world: World) -> None:
    world.backward()
    world.answer_all()
    assert all(bool((p.grad == 7.0).all()) for p in world.net.parameters())
    assert {type(p) for p in world.net.parameters()} == {nn.Parameter}


def test_a_step_uses_what_became_of_the_gradient(world: World) -> None:
    before = values(world)
    world.backward()
    world.answer_all()
    for parameter in world.net.parameters():
        parameter.grad.mul_(2.0)
    world.sgd.step()
    assert torch.equal(world.net[0].weight, before[0] - 0.5 * 14.0)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("by_model", [False, True])
def test_zero_grad_destroys_nothing_that_is_due(
    world: World, in_place: bool, by_model: bool
) -> None:
    before = values(world)
    world.backward()
    world.sgd.step()
    (world.ddp if by_model else world.sgd).zero_grad(set_to_none=not in_place)
    for parameter in world.net.parameters():  # known without waiting
        assert float(parameter.grad.abs().sum()) == 0.0 if in_place else parameter.grad is None
    world.answer_all()
    world.handle.synchronize()
    for old, parameter in zip(before, world.net.parameters(), strict=True):
        assert torch.equal(parameter, old - 0.5 * 7.0)
        assert float(parameter.grad.abs().sum()) == 0.0 if in_place else parameter.grad is None


def test_zero_grad_without_a_step_discards(world: World) -> None:
    before = values(world)
    world.backward()
    world.answer_all()
    world.sgd.zero_grad()
    world.sgd.step()
    assert all(torch.equal(a, b) for a, b in zip(before, world.net.parameters(), strict=True))


def test_two_steps_with_one_gradient_are_two_updates(world: World) -> None:
    before = values(world)
    world.backward()
    world.sgd.step()
    world.answer_all()
    world.sgd.step()
    world.handle.synchronize()
    assert torch.allclose(world.net[0].weight, before[0] - 7.0)


def test_an_update_in_a_forward_pass_is_not_under_its_autocast(world: World) -> None:
    seen = []
    optimizer = torch.optim.SGD(world.net.parameters(), lr=0.5)
    step = RecordedStep(optimizer, lambda: seen.append(torch.is_autocast_enabled("cpu")))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        step.apply([world.net[0].weight])
    assert seen == [False]


def test_settings_are_those_of_the_step(world: World) -> None:
    before = values(world)
    world.backward()
    world.sgd.step()
    world.sgd.param_groups[0]["lr"] = 100.0
    world.answer_all()
    world.handle.synchronize()
    assert torch.equal(world.net[0].weight, before[0] - 0.5 * 7.0)


USES: dict[str, Any] = {
    "state_dict": lambda w: w.ddp.state_dict()["module.0.weight"],
    "deepcopy": lambda w: copy.deepcopy(w.net)[0].weight,
    "pickle": lambda w: pickled(w.net)[0].weight,
    "data": lambda w: w.net[0].weight.data,
    "list": lambda w: torch._foreach_mul([w.net[0].weight], 1.0)[0],  # noqa: SLF001
    "keyword": lambda w: torch.mul(input=w.net[0].weight, other=1.0),
    "dictionary": lambda w: next(iter(dict(w.net.named_parameters()).values())) + 0.0,
    "numpy": lambda w: torch.from_numpy(w.net[0].weight.detach().numpy()),
    "synchronize": lambda w: w.handle.synchronize() or w.net[0].weight,
    "optimizer": lambda w: w.sgd.state_dict() and w.net[0].weight.view_as(w.net[0].weight),
}


def pickled(net: nn.Module) -> Any:
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("use", USES)
def test_whatever_looks_at_a_weight_sees_it_updated(world: World, use: str) -> None:
    before = values(world)
    world.backward()
    world.sgd.step()
    world.answer_all()
    seen = USES[use](world)
    assert torch.equal(seen, before[0] - 0.5 * 7.0)
    assert type(seen) is not LazyParameter


def with_momentum(world: World) -> None:
    """The same world with an optimizer that has a state."""
    world.handle.close()
    world.sgd = torch.optim.SGD(world.ddp.parameters(), lr=0.5, momentum=0.9)
    world.ddp = DistributedDataParallel(world.net)
    world.handle = world.registered()
    world.warm_up()


def test_the_optimizers_state_is_that_after_the_step(world: World) -> None:
    with_momentum(world)
    world.backward()
    world.sgd.step()
    world.answer_all()
    state = world.sgd.state_dict()["state"]
    assert bool((state[0]["momentum_buffer"] == 7.0).all())


def test_a_state_that_is_loaded_is_not_that_of_a_step_before(world: World) -> None:
    with_momentum(world)
    empty = world.sgd.state_dict()
    world.backward()
    world.sgd.step()
    world.answer_all()
    world.sgd.load_state_dict(empty)
    world.handle.synchronize()
    assert not world.sgd.state


def test_a_module_that_works_behind_pythons_back_finds_its_own_updated(world: World) -> None:
    before = values(world)
    world.backward()
    world.sgd.step()
    world.answer_all()
    seen = []

    def forward(_: torch.Tensor) -> torch.Tensor:
        with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001
            seen.append(world.net[0].weight.clone())
        return torch.ones(1)

    world.net[0].forward = forward
    world.net[0](BATCH)
    assert torch.equal(seen[0], before[0] - 0.5 * 7.0)


def test_a_failure_comes_out_wherever_somebody_waits_and_each_time(world: World) -> None:
    world.backward()
    world.sgd.step()
    world.fail_all()
    for use in (
        lambda: world.ddp(BATCH),
        lambda: world.net[0].weight.grad,
        world.handle.synchronize,
        world.ddp.state_dict,
        world.sgd.state_dict,
        partial(torch.sum, world.net[2].weight),
        world.sgd.step,
    ):
        with pytest.raises(PeerLost, match="rank 1 is gone"):
            use()
    world.handle.close()  # all were told
    assert {type(p) for p in world.net.parameters()} == {nn.Parameter}
    assert all(p.grad is None for p in world.net.parameters())  # not this rank's own


def test_close_tells_of_a_failure_that_nobody_heard_of(world: World) -> None:
    world.backward()
    world.sgd.step()
    world.fail_all()
    with pytest.raises(PeerLost, match="rank 1 is gone"):
        world.handle.close()
    world.handle.close()
    assert {type(p) for p in world.net.parameters()} == {nn.Parameter}
    assert all(p.grad is None for p in world.net.parameters())


def test_a_discarded_gradients_failure_is_told(world: World) -> None:
    world.backward()
    world.fail_all()
    with pytest.raises(PeerLost):
        world.sgd.zero_grad()


def test_a_wait_ends_with_the_policys_deadline(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "MARGIN", 0.0)
    monkeypatch.setattr("dlcp_client.operations.work.LATE", 0.0)
    world.handle.rules.policy = world.handle.rules.exact = exact(deadline=0.2)
    world.backward()
    world.sgd.step()
    with pytest.raises(DeadlineExceeded):
        world.ddp(BATCH)


def test_close_does_what_is_due_and_gives_everything_back(world: World) -> None:
    before = values(world)
    world.backward()
    world.sgd.step()
    world.answer_all()
    world.handle.close()
    assert torch.equal(world.net[0].weight, before[0] - 0.5 * 7.0)
    assert {type(p) for p in world.net.parameters()} == {nn.Parameter}
    world.sgd.step()  # an ordinary one: .grad is still there
    assert torch.allclose(world.net[0].weight, before[0] - 7.0)
    submitted = len(world.far.far[0].submits)
    world.backward()  # by the model's own group
    assert len(world.far.far[0].submits) == submitted
    assert {type(p) for p in world.net.parameters()} == {nn.Parameter}


def test_joining_uneven_ranks_is_refused(world: World) -> None:
    with pytest.raises(BadConfig, match=r"join\(\) averages on behalf of ranks"), world.ddp.join():
        world.backward()


def test_two_backward_passes_of_one_forward_pass_are_refused(world: World) -> None:
    loss = world.ddp(BATCH).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(BadConfig, match="second backward pass without a forward pass"):
        loss.backward()


def test_classes_follow_the_forward_pass(world: World) -> None:
    world.backward()
    world.far.wait_for(world.begun + PIECES)
    rows = [submit.layers for submit in world.far.far[0].submits.values()][-PIECES:]
    assert rows == [[(0, rank, 0)] for rank in (3, 2, 1)]


def test_a_step_with_a_closure_is_refused(world: World) -> None:
    with pytest.raises(BadConfig, match=r"step\(closure\) needs the loss at once"):
        world.sgd.step(lambda: 1.0)


def test_step_hooks_are_refused(world: World) -> None:
    handle = world.sgd.register_step_post_hook(lambda *_: None)
    with pytest.raises(BadConfig, match="step hooks"):
        world.sgd.step()
    handle.remove()
    world.sgd.step()


@pytest.mark.parametrize("times", ["before", "after", "before and after"])
def test_a_scheduler_from_before_or_after_fits(world: World, times: str) -> None:
    """Warnings are errors here, and a scheduler warns when its optimizer's step() is gone."""
    world.handle.close()
    world.sgd = torch.optim.SGD(world.net.parameters(), lr=0.5)
    world.ddp = DistributedDataParallel(world.net)
    schedulers = []
    if "before" in times:
        schedulers.append(torch.optim.lr_scheduler.ExponentialLR(world.sgd, 0.5))
    world.handle = world.registered()
    if "after" in times:
        schedulers.append(torch.optim.lr_scheduler.ExponentialLR(world.sgd, 0.5))
    world.backward()
    world.sgd.step()
    for scheduler in schedulers:
        scheduler.step()
    assert world.sgd.param_groups[0]["lr"] == 0.5 ** (1 + len(schedulers))


@pytest.mark.parametrize("trained", [False, True])
def test_close_leaves_nothing_behind(world: World, trained: bool) -> None:
    if not trained:
        world.handle.close()
        world.ddp = DistributedDataParallel(world.net)
        world.handle = world.registered()
    world.handle.close()
    assert not torch.nn.modules.module._global_forward_pre_hooks  # noqa: SLF001
    assert not world.net[0].weight._post_accumulate_grad_hooks  # noqa: SLF001
    assert not world.sgd._optimizer_state_dict_pre_hooks  # noqa: SLF001
    assert not world.sgd._optimizer_load_state_dict_pre_hooks  # noqa: SLF001
    assert vars(world.ddp)["zero_grad"].__func__ is nn.Module.zero_grad


def test_a_profile_shows_where_the_forward_pass_waits(world: World) -> None:
    world.backward()
    world.sgd.step()
    world.answer_all()
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        world.ddp(BATCH)
    assert sum(event.name == WAIT for event in profiled.events()) == PIECES
