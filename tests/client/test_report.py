"""What a registration says of its training: sums, scalars and text of given numbers."""

import logging
from contextlib import suppress
from typing import Any

import pytest
import torch

from dlcp_client import DaemonLost, DlcpError, Session, bounded, exact
from dlcp_client.operations.ledger import MAX_NAMES, Ledger
from dlcp_client.operations.open_operations import Operations
from dlcp_client.operations.outcomes import Outcomes
from dlcp_client.operations.work import Work
from dlcp_client.report.account import Account
from dlcp_client.report.ranks import RankTotals
from dlcp_client.report.registered import Registered
from dlcp_client.report.text import summary, window
from dlcp_client.report.totals import Totals
from dlcp_client.reporting import each
from dlcpd.contract.errors import BadConfig
from dlcpd.contract.messages import Completed
from tests.client.stand_in import StandIn

WHOLE = Totals(
    steps=10,
    handed_bytes=270_000_000,
    bounded_bytes=250_000_000,
    waited=0.31,
    whole_steps=9,
    whole=1.8,
    session=Ledger(30, 40_000, 120, 90, 80, 70, 0.06),
    by_name={
        "a": Ledger(10, 20_000, 60, 80, 75, 40, 0.05),
        "b": Ledger(10, 10_000, 30, 10, 5, 9, 0.01),
    },
)


class Clock:
    """Seconds that the test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_scalars_are_fractions_and_means() -> None:
    said = WHOLE.scalars(waits=True, network=True)
    assert said["loss"] == pytest.approx(90 / 30_000)
    assert said["energy_lost"] == pytest.approx(0.06 / 20)
    assert (said["exposed_s"], said["step_s"]) == pytest.approx((0.031, 0.2))
    assert (said["steps"], said["bytes"], said["waived"], said["retransmitted"]) == (
        10,
        270_000_000,
        90,
        120,
    )


def test_what_is_not_known_is_left_out() -> None:
    assert Totals(steps=1).scalars(waits=False, network=False) == {"steps": 1, "bytes": 0}
    assert "exposed_s" not in WHOLE.scalars(waits=False, network=True)


def test_what_came_after_a_moment_is_the_difference() -> None:
    earlier = Totals(
        4, 100, 50, 0.01, 3, 0.6, Ledger(5, 5, 5, 5, 5, 5, 0.0), {"a": WHOLE.by_name["a"]}
    )
    later = WHOLE.since(earlier)
    assert (later.steps, later.handed_bytes, later.whole_steps) == (6, 269_999_900, 6)
    assert later.session == Ledger(25, 39_995, 115, 85, 75, 65, 0.06)
    assert list(later.by_name) == ["b"]  # nothing happened under the other name


def test_waits_and_steps_are_measured_by_the_clock() -> None:
    clock = Clock()
    account = Account(clock)
    for step in range(3):
        clock.now = 10.0 * step
        account.begin()
        account.handed(100, bounded=step > 0)
        with suppress(ZeroDivisionError), account.waiting():
            clock.now += 2.0
            raise ZeroDivisionError  # a wait that fails was one all the same
    totals = account.totals(None)
    assert (totals.steps, totals.whole_steps) == (3, 2)
    assert (totals.wait, totals.step) == (2.0, 10.0)
    assert (totals.handed_bytes, totals.bounded_bytes) == (300, 200)


def _outcomes(session: Session) -> Outcomes:
    return session._connection.outcomes  # noqa: SLF001


def test_losses_of_bounded_operations_are_added_up_by_name(world: StandIn) -> None:
    table = Operations(lambda _: None)
    for number, name in enumerate(["a", "b", "a", ""], start=1):
        work = Work[torch.Tensor](
            _outcomes(world.sessions[0]),
            block=world.sessions[0].library.block(torch.zeros(1)),
            expires=0.0,
            label="",
        )
        work.bounded_as = name
        table.begin(work, ())
        with table.changed:
            table.handle_locked(Completed(number, True, 10, 0, number, 0, 0, 0.25, -1, []))
    found = table.ledgers.bounded(["a", "b", "c", ""])
    assert {name: row.waived for name, row in found.items()} == {"a": 4, "b": 2}
    assert found["a"].energy == 0.5
    assert table.ledgers.whole.operations == 4


def test_an_outcome_is_counted_before_a_waiting_thread_can_see_it(world: StandIn) -> None:
    table, session = Operations(lambda _: None), world.sessions[0]
    counted = []

    class Seen(Work[torch.Tensor]):
        def settle(self, outcome: Completed | DlcpError) -> None:
            counted.append((table.ledgers.whole.waived, table.ledgers.bounded(["a"])["a"].waived))
            super().settle(outcome)

    block = session.library.block(torch.zeros(1))
    work = Seen(_outcomes(session), block=block, expires=0.0, label="")
    work.bounded_as = "a"
    table.begin(work, ())
    with table.changed:
        table.handle_locked(Completed(1, True, 10, 0, 7, 0, 0, 0.25, -1, []))
    assert counted == [(7, 7)]


def test_names_are_bounded_and_the_totals_go_on(world: StandIn) -> None:
    table, session = Operations(lambda _: None), world.sessions[0]
    for number in range(1, MAX_NAMES + 3):
        work = Work[torch.Tensor](
            _outcomes(session),
            block=session.library.block(session.library.nothing),
            expires=0.0,
            label="",
        )
        work.bounded_as = str(number)
        table.begin(work, ())
        with table.changed:
            table.handle_locked(Completed(number, True, 1, 0, 0, 0, 0, 0.0, -1, []))
    assert len(table.ledgers.bounded([str(number) for number in range(MAX_NAMES + 3)])) == MAX_NAMES
    assert table.ledgers.whole.operations == MAX_NAMES + 2


def test_a_summary_says_what_was_lost_where_and_what_waiting_cost() -> None:
    text = "\n".join(summary(WHOLE, bounded(0.01), {"a": "one.weight to two.bias"}, waits=True))
    assert "10 steps, 27 MB of each" in text
    assert "93% of those bytes bounded: 0.300% of their segments waived (bound 1.000%)" in text
    assert "0.300% of the energy; 80 of 90 segments reapplied so far" in text
    assert "  0.400% of one.weight to two.bias\n  0.100% of b" in text
    assert "a step waited 31 ms for the network, 16% of its 200 ms" in text


def test_a_policy_that_never_applied_says_why() -> None:
    lines = summary(Totals(3, 300), bounded(0.01), {}, waits=False)
    assert lines == [
        "3 steps, 100 B of each through dlcpd",
        "bounded(0.01) was never applied: it applies after the warm-up steps, to buckets of 1 MiB "
        "and more",
    ]
    assert len(summary(Totals(3, 300), exact(), {}, waits=False)) == 1


def test_all_ranks_are_one_line_that_names_the_worst() -> None:
    ranks = RankTotals(sent=[100.0, 100.0], waived=[0.0, 3.0], waits=[0.5, 0.25])
    assert ranks.text(waits=True) == (
        "all 2 ranks: 1.500% waived, most by rank 1 (3.000%); longest wait 500 ms a step, on rank 0"
    )
    assert (
        RankTotals([0.0] * 3, [0.0] * 3, [0.0] * 3).text(waits=False)
        == "all 3 ranks: 0.000% waived"
    )


def test_a_daemon_that_says_nothing_leaves_paths_out(world: StandIn) -> None:
    assert world.sessions[0].status(timeout=0.05) == {}


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """No daemon answers, and nobody waits for that."""
    monkeypatch.setattr(Session, "status", lambda *_: {})


class Model(Registered):
    """A registration of nothing."""

    policy = bounded(0.01)

    def __init__(self, session: Any) -> None:
        self.session, self.account = session, Account()


def test_rank_0_says_how_it_went_once_and_only_while_somebody_has_the_model(
    world: StandIn, caplog: pytest.LogCaptureFixture, silent: None
) -> None:
    caplog.set_level(logging.INFO, "dlcp_client")
    models = [Model(session) for session in world.sessions]
    for model in (models[0], models[1], Model(world.sessions[0])):  # nobody keeps the last
        model.begun("test")
    caplog.clear()
    del model
    models[0].over()
    for session in world.sessions:
        session.close()
    ends = [record.message for record in caplog.records if "steps" in record.message]
    assert ends == [f"test, rank 0 of 2: {'; '.join(models[0].summary().splitlines())}"]
    assert Model(None).begun("nothing to say") is None  # type: ignore[func-returns-value]


def test_the_line_at_the_end_names_what_ended_the_session(
    world: StandIn, caplog: pytest.LogCaptureFixture, silent: None
) -> None:
    caplog.set_level(logging.INFO, "dlcp_client")
    model = Model(world.sessions[0])
    model.begun("test")
    world.far[0].close()
    with pytest.raises(DaemonLost):
        world.sessions[0].all_reduce(torch.ones(4)).wait()
    world.sessions[0].close()
    assert "; ended by: dlcpd ended while the session was open" in caplog.text


def windows_of(log: Any, every: int = 2, clock: Clock | None = None) -> Model:
    model = Model(None)
    model.account = Account(clock or Clock())
    model.report_to(log, every=every)
    return model


def test_loggers_are_told_every_so_many_steps_of_those_alone() -> None:
    clock = Clock()
    told: list[tuple[int, dict[str, float]]] = []
    model = windows_of(lambda scalars, step: told.append((step, scalars)), 2, clock)
    for step in range(6):
        clock.now += 1.0 + step
        model.account.begin()
        model.account.handed(10**step)
    assert [step for step, _ in told] == [2, 4]
    assert [scalars["dlcp/bytes"] for _, scalars in told] == [11, 1100]
    assert [scalars["dlcp/step_s"] for _, scalars in told] == [2.5, 4.5]


def test_a_logger_of_one_scalar_at_a_time_has_an_adapter() -> None:
    told: list[tuple[str, float, int]] = []
    each(lambda tag, scalar_value, global_step: told.append((tag, scalar_value, global_step)))(
        {"a": 1.0, "b": 2.0}, 7
    )
    assert told == [("a", 1.0, 7), ("b", 2.0, 7)]


def test_a_logger_that_fails_ends_no_training_and_is_not_called_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls: list[int] = []

    def broken(_: Any, step: int) -> None:
        calls.append(step)
        raise OSError("disk full")

    model = windows_of(broken, every=1)
    for _ in range(4):
        model.account.begin()
    assert calls == [1]
    assert "the logger failed" in caplog.text and "disk full" in caplog.text


@pytest.mark.parametrize(("log", "every"), [(None, 0), (None, 1.5), ("wandb", 1)])
def test_what_is_no_logger_or_no_number_is_refused(log: Any, every: Any) -> None:
    with pytest.raises(BadConfig, match="report_to"):
        windows_of(log, every)


def test_a_line_says_what_is_known() -> None:
    found = WHOLE.scalars(waits=True, network=True) | {"paths": 4, "paths_in_alarm": 1}
    assert window(found) == (
        "27 MB a step, 0.300% of bounded segments waived, 120 of 40000 segments retransmitted, "
        "waited 31 of 200 ms, 1 of 4 paths in alarm"
    )
    assert window({"steps": 2, "bytes": 10}) == "5 B a step"
