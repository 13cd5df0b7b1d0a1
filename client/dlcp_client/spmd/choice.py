"""The cheapest way to run one call: which factor each mesh axis divides.

The candidates are the factors that operands have divided already, and the factors that results
shall have divided. The price is the time of the collectives before and after, and of the work that
a rank does.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any, Final, NamedTuple

from .costs import Costs
from .factors import ByFactor, dealt, sharding_of
from .halos import divided_halos, divides_halos_simply, windows_of
from .meshes import Mesh
from .resharding import Move, bytes_sent, steps
from .rules import Rule
from .rules.rule import Dims
from .sharding import Sharding, Split, Splits, axes_in, axes_of
from .windows import received_rows, row_bytes

MAX_CANDIDATES: Final = 4096  # of one call: 6 axes with 3 factors each


class Place(NamedTuple):
    """An operand or a result of a call: its factors, and the sharding that it has, or shall have.
    `free`: shardings in which an operand is at hand already."""

    dims: Dims
    shape: tuple[int, ...]
    item: int  # bytes of an element
    sharding: Sharding
    free: Collection[Sharding] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """How the factors of a call are divided, and what follows for its tensors."""

    by_factor: ByFactor
    shardings: tuple[Sharding, ...]  # of the places


@dataclass(frozen=True, slots=True)
class Chooser:
    """Chooses for the calls of one mesh. Equal calls, as those of repeated layers, are chosen for
    once: rules are known by identity."""

    mesh: Mesh
    costs: Costs
    _known: dict[Any, tuple[Rule, Choice]] = field(default_factory=dict)

    def choose(
        self,
        rule: Rule,
        places: Sequence[Place],
        *,
        excluded: Collection[str] = (),
        terms: int = 1,
    ) -> Choice:
        """The first of the cheapest candidates, so that every rank chooses alike.

        `places`: in the order of `Rule.places`; `excluded`: axes that must divide nothing; `terms`:
        calls that share the sum of the results' parts.
        """
        about = [(one.sharding, frozenset(one.free)) for one in places]
        key = id(rule), tuple(about), tuple(excluded), terms
        if key not in self._known:  # which keeps the rule, and so its identity
            candidates = self._candidates(rule, places, excluded)
            self._known[key] = rule, self._cheapest(rule, places, candidates, terms)
        return self._known[key][1]

    def _cheapest(
        self, rule: Rule, places: Sequence[Place], candidates: Iterator[ByFactor], terms: int
    ) -> Choice:
        best: tuple[float, Choice] | None = None
        for by_factor in candidates:
            choice = self._choice(rule, places, by_factor)
            if choice is not None:
                price = self._price(rule, places, choice, terms)
                if best is None or price < best[0]:
                    best = price, choice
        if best is None:
            raise AssertionError("the candidate that divides nothing is always possible")
        return best[1]

    def _candidates(
        self, rule: Rule, places: Sequence[Place], excluded: Collection[str]
    ) -> Iterator[ByFactor]:
        """Every axis divides one of the factors that it divides somewhere, or none."""
        options: dict[str, list[tuple[str, Split] | None]] = {}
        order: dict[str, list[Split]] = {}  # of the splits of a factor
        for place in places:
            for dim, splits in zip(place.dims, place.sharding, strict=True):
                for factor, part in dealt(dim, splits, rule.sizes, self.mesh).items():
                    for split in part:
                        known = order.setdefault(factor, [])
                        if split not in known and split.axis not in excluded:
                            known.append(split)
                            options.setdefault(split.axis, [None]).append((factor, split))
        names = [name for name in self.mesh.names if name in options]
        while prod(len(options[name]) for name in names) > MAX_CANDIDATES:
            names.pop()  # the innermost axis: what it would divide stays whole
        for picks in product(*(options[name] for name in names)):
            chosen = [pick for pick in picks if pick is not None]
            yield {
                factor: tuple(split for split in splits if (factor, split) in chosen)
                for factor, splits in order.items()
            }

    def _choice(self, rule: Rule, places: Sequence[Place], by_factor: ByFactor) -> Choice | None:
        """None: a tensor cannot be divided in that way."""
        if any(rule.sizes[name] < self.mesh.parts(part) for name, part in by_factor.items()):
            return None
        if not divides_halos_simply(rule, by_factor):
            return None
        found = []
        for place in places:
            sharding = sharding_of(place.dims, by_factor, rule, self.mesh)
            if sharding is None or not self._fits(place, sharding):
                return None
            found.append(sharding)
        return Choice(by_factor, tuple(found))

    def _fits(self, place: Place, sharding: Sharding) -> bool:
        """Whether no shard is without rows but padding, at least of an even cut."""
        pairs = zip(place.shape, sharding, strict=True)
        return all(rows >= self.mesh.parts(splits) for rows, splits in pairs if splits)

    def _price(self, rule: Rule, places: Sequence[Place], choice: Choice, terms: int) -> float:
        count = len(rule.operands)
        total = self._work(rule, places, choice) / self.costs.work_per_s
        for at, (place, made) in enumerate(zip(places, choice.shardings, strict=True)):
            if at < count:
                total += 0.0 if made in place.free else self._moved(place, place.sharding, made)
            elif axes := summed_axes(rule, at - count, choice.by_factor):
                total += sum(self._added_up(place, made, axis) for axis in axes) / terms
            else:
                total += self._moved(place, made, place.sharding)
        return total + self._halos(rule, places, choice)

    def _halos(self, rule: Rule, places: Sequence[Place], choice: Choice) -> float:
        """The time of fetching windows, and of adding them."""
        axes = divided_halos(rule, choice.by_factor, self.mesh)
        total, count = 0.0, len(rule.operands)
        for at, (place, made) in enumerate(
            zip(places, choice.shardings, strict=True) if axes else ()
        ):
            for dim, axis, halo in windows_of(rule, axes, place.dims):
                moves = at in halo.reads if at < count else at - count in halo.adds
                if moves:
                    rows = received_rows(halo.window, self.mesh.sizes[axis])
                    local = self.mesh.local_shape(place.shape, made)
                    total += self.costs.of(rows * row_bytes(local, dim, place.item), axis)
        return total

    def _moved(self, place: Place, have: Sharding, want: Sharding) -> float:
        return sum(
            self.costs.of(bytes_sent(step, place.shape, place.item, self.mesh), step.split.axis)
            for step in steps(have, want)
            if step.move is not Move.SLICE
        )

    def _added_up(self, place: Place, made: Sharding, axis: str) -> float:
        """A reduce-scatter if the result shall be divided by the axis, else an all-reduce."""
        times = 1 if axis in axes_in(place.sharding) else 2
        local = prod(self.mesh.local_shape(place.shape, made)) * place.item
        return self.costs.of(times * local * (1 - 1 / self.mesh.sizes[axis]), axis)

    def _work(self, rule: Rule, places: Sequence[Place], choice: Choice) -> float:
        """Elements that a rank reads and writes, and multiplications of a product."""
        pairs = zip(places, choice.shardings, strict=True)
        elements = sum(prod(self.mesh.local_shape(place.shape, made)) for place, made in pairs)
        if rule.passes:
            return float(elements)
        shards = prod(self.mesh.parts(splits) for splits in choice.by_factor.values())
        return elements + prod(rule.sizes.values()) / shards


def summed_axes(rule: Rule, result: int, by_factor: ByFactor) -> tuple[str, ...]:
    """The axes over which a result is a partial sum, in a fixed order."""
    parts: list[Splits] = [by_factor.get(factor, ()) for factor in sorted(rule.summed[result])]
    return tuple(axis for part in parts for axis in axes_of(part))
