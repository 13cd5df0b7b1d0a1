"""Energy per segment, short tails included; drop precedences and permits that follow from it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.contract.traffic import PROTECTED
from dlcpd.core.transfer.budget import Budget
from dlcpd.core.transfer.layers import MILLION
from dlcpd.core.transfer.permit import MUST_ARRIVE, Permit
from dlcpd.numerics.elements import STORAGE, narrow, view, widen
from dlcpd.numerics.magnitude import LIGHT, MEDIUM, OperationEnergy, drop_precedences, energies

SEGMENT = 64


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("tail", [0, 8, 56])
def test_energy_is_the_sum_of_squares(dtype: str, tail: int) -> None:
    item = STORAGE[dtype].itemsize
    count = (5 * SEGMENT + tail) // item
    numbers = np.random.default_rng(1).normal(size=count)
    stored = narrow(numbers.astype(np.float32), dtype) if item == 2 else numbers
    raw = np.ascontiguousarray(stored, STORAGE[dtype]).view(np.uint8)
    wide = widen(view(raw, dtype), dtype).astype(np.float64)
    expected = [
        (wide[at : at + SEGMENT // item] ** 2).sum() for at in range(0, count, SEGMENT // item)
    ]
    assert energies(raw, dtype, SEGMENT) == pytest.approx(np.array(expected), rel=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_never_light(bad: float) -> None:
    numbers = np.zeros(4 * 16, np.float32)
    numbers[40] = bad
    energy = energies(numbers.view(np.uint8), "float32", SEGMENT)
    assert energy.tolist() == [0, 0, np.inf, 0]


@pytest.mark.parametrize(("dtype", "value"), [("float32", 3e38), ("bfloat16", 3e38)])
def test_squares_beyond_float32_count_as_what_they_are(dtype: str, value: float) -> None:
    """And so the rest of a tensor is known: what is waived stays within the bound."""
    numbers = narrow(np.full(64, value, np.float32), dtype)
    numbers[: SEGMENT // numbers.itemsize] = narrow(np.ones(1, np.float32), dtype)[0]
    per = SEGMENT // numbers.itemsize
    energy = energies(numbers.view(np.uint8), dtype, SEGMENT)
    assert energy == pytest.approx([per, *[per * value**2] * (64 // per - 1)], rel=0.02)
    made = OperationEnergy({0: energy})
    made.spend(0, energy[:1])
    assert 0 < made.spent_share < 1e-60


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool"])
def test_integers_have_no_small_ones(dtype: str) -> None:
    assert np.isinf(energies(np.zeros(100, np.uint8), dtype, SEGMENT)).all()


def test_both_parts_of_a_complex_number_count() -> None:
    numbers = np.array([3 + 4j] * 10, np.complex64)
    assert energies(numbers.view(np.uint8), "complex64", SEGMENT).tolist() == [200, 50]


def budget(bounds: list[float], exempt: list[int] | None = None) -> Budget:
    """The budget of a chunk by the bound of each segment; equal bounds are one part."""
    untouched = None
    if exempt:
        untouched = np.zeros(len(bounds), bool)
        untouched[exempt] = True
    made = Budget.new(np.array([round(bound * MILLION) for bound in bounds]), untouched)
    assert made is not None
    return made


def test_the_lightest_segments_of_a_chunk_are_dropped_first() -> None:
    energy = np.array([1.0, 9.0, 5.0, 2.0, 8.0, 6.0])
    ranks = drop_precedences(energy, budget([0.5] * 6), np.arange(6))
    assert ranks.tolist() == [LIGHT, PROTECTED, MEDIUM, LIGHT, PROTECTED, MEDIUM]


@pytest.mark.parametrize(
    ("bound", "light", "medium"), [(0.01, 1, 1), (0.05, 5, 5), (0.3, 30, 30), (0.5, 33, 33)]
)
def test_as_many_may_be_dropped_as_may_stay_missing(bound: float, light: int, medium: int) -> None:
    ranks = drop_precedences(np.arange(100.0), budget([bound] * 100), np.arange(100)).tolist()
    assert ranks == [LIGHT] * light + [MEDIUM] * medium + [PROTECTED] * (100 - light - medium)


def test_what_must_arrive_is_protected() -> None:
    energy = np.array([0.0, np.inf, np.nan, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    ranks = drop_precedences(energy, budget([0.4] * 9, exempt=[0]), np.arange(9))
    assert ranks[:3].tolist() == [PROTECTED] * 3
    assert np.flatnonzero(ranks == LIGHT).tolist() == [3, 4]


def test_of_equal_energies_the_first_of_the_pass_are_the_lightest() -> None:
    turned = np.roll(np.arange(9), -4)
    ranks = drop_precedences(np.ones(9), budget([0.3] * 9), turned)
    assert ranks[turned].tolist() == [LIGHT] * 2 + [MEDIUM] * 2 + [PROTECTED] * 5


@given(
    st.lists(
        st.tuples(st.floats(0, 1e6), st.sampled_from([0.0, 0.05, 0.2, 0.9]), st.booleans()),
        min_size=1,
        max_size=120,
    )
)
def test_all_light_segments_of_a_chunk_may_be_missing(
    segments: list[tuple[float, float, bool]],
) -> None:
    """Whatever its layers are: else a queue drops segments that must be retransmitted."""
    energy = np.array([each for each, _, _ in segments])
    keys = np.array([round(bound * MILLION) for _, bound, _ in segments])
    made = Budget.new(keys, np.array([exempt for _, _, exempt in segments]))
    if made is not None:
        ranks = drop_precedences(energy, made, np.arange(len(energy)))
        assert made.covers(ranks == LIGHT)
        assert not (ranks[made.untouchable] != PROTECTED).any()
        for part in range(len(made.allowed)):
            own = made.part == part
            light, medium = energy[own & (ranks == LIGHT)], energy[own & (ranks == MEDIUM)]
            heavy = energy[own & (ranks == PROTECTED) & ~made.untouchable]
            assert len(light) == len(medium) <= len(heavy)
            if len(light):
                assert light.max() <= medium.min() <= medium.max() <= heavy.min()


def test_a_rank_that_owns_everything_contributes_nothing() -> None:
    assert OperationEnergy({}).total == 0


# --- what may be waived -----------------------------------------------------------------------


def operation(*energy: float) -> OperationEnergy:
    return OperationEnergy({0: np.array(energy, np.float32)})


def refused(made: OperationEnergy, segments: list[int], bound: float) -> list[int]:
    out: list[int] = made.beyond(0, np.array(segments, np.intp), made.of(0), bound).tolist()
    return out


def test_no_more_energy_is_waived_than_the_bound_allows() -> None:
    made = operation(*[1.0] * 90, *[11.0] * 10)  # 200 in all
    assert refused(made, [0, 1], 0.01) == []
    assert refused(made, [0, 1, 2], 0.01) == [2]
    assert refused(made, [0, 95], 0.01) == [95]  # the heaviest is refused
    made.spend(0, np.ones(2))
    assert refused(made, [2], 0.01) == [2]
    assert made.spent_share == pytest.approx(0.01)


def test_what_is_not_finite_is_never_waived() -> None:
    made = operation(1.0, float("inf"), 1.0)
    assert refused(made, [0, 1, 2], 0.5) == [1]
    assert made.spent_share == 0


def test_nothing_can_be_lost_of_nothing() -> None:
    assert refused(operation(0.0, 0.0), [0, 1], 0.01) == []
    assert operation(0.0).spent_share == 0


def test_heads_weigh_more_than_any_and_count_for_nothing() -> None:
    energies_ = {3: np.array([np.inf, np.inf, 1, 2, 3, 4, 5, 6], np.float64)}
    energy = OperationEnergy(energies_, {3: 2})
    assert energy.total == 21
    ranks = drop_precedences(energies_[3], budget([0.2] * 8), np.arange(8))
    assert ranks.tolist() == [PROTECTED] * 2 + [LIGHT, MEDIUM] + [PROTECTED] * 4
    assert len(energy.beyond(3, np.array([2]), energies_[3], 0.04)) == 1  # 1 of 21 is more
    assert not len(energy.beyond(3, np.array([2]), energies_[3], 0.05))


# --- permits ----------------------------------------------------------------------------------

ENERGY = st.one_of(st.floats(0, 1e6), st.sampled_from([0.0, 1.0, 1e12, float("inf")]))


@given(
    st.lists(st.lists(ENERGY, min_size=1, max_size=40), min_size=1, max_size=3),
    st.floats(0.001, 0.9),
)
def test_whatever_peers_waive_under_permits_is_within_the_bound(
    chunks: list[list[float]], bound: float
) -> None:
    made = OperationEnergy({n: np.array(chunk) for n, chunk in enumerate(chunks)})
    worst = 0.0
    for chunk in range(len(chunks)):
        energy = made.of(chunk)
        permit = Permit(*made.costs(chunk, bound))
        heaviest = permit.first(np.argsort(-energy, kind="stable"))
        assert np.isfinite(energy[heaviest]).all()
        worst += float(energy[heaviest].sum())
    if np.isfinite(made.total):
        assert worst <= bound * made.total * (1 + 1e-9)


def test_segments_of_like_energy_may_be_waived_up_to_the_bound() -> None:
    energy = np.random.default_rng(1).uniform(0.9, 1.1, 400)
    made = OperationEnergy({0: energy})
    permit = Permit(*made.costs(0, 0.02))
    assert len(permit.first(np.arange(400))) >= 7  # of 8


def test_a_segment_far_above_the_others_must_arrive() -> None:
    energy = np.ones(100)
    energy[3] = 50.0
    made = OperationEnergy({0: energy})
    _, costs = made.costs(0, 0.5)
    assert np.flatnonzero(costs == MUST_ARRIVE).tolist() == [3]


def test_a_permit_leaves_less_for_other_chunks_and_a_refusal_stays_one() -> None:
    made = OperationEnergy({0: np.ones(50), 1: np.ones(50)})
    made.costs(0, 0.04)
    asked = np.arange(3)
    assert made.beyond(1, asked, made.of(1), 0.04).tolist() == [2]
    made.spend(0, np.ones(1))  # less than was permitted
    assert made.beyond(1, asked, made.of(1), 0.04).tolist() == [2]
