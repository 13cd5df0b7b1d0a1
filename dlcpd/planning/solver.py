"""Linear programs of a packing: weights of trees whose loads fit the links. Needs scipy (HiGHS).

scipy is loaded on use: closed forms and bounds do without it.
"""

import importlib
from typing import Any

import numpy as np

from dlcpd.contract.errors import LocalError
from dlcpd.planning.pair_loads import Loads


class SolverMissing(LocalError):
    """scipy is not installed, and the network has no closed form."""

    code = "solver_missing"


def optimizer() -> Any:
    """The module scipy.optimize. Raises: SolverMissing."""
    try:
        return importlib.import_module("scipy.optimize")
    except ImportError as exc:
        raise SolverMissing(
            f"trees for this network need scipy ({exc}): pip install 'dlcpd[planner]'; without it "
            "there are closed forms only, for hosts on one switch"
        ) from exc


def most(loads: Loads, capacity: Loads) -> tuple[Loads, Loads]:
    """Weights of the columns of `loads` with the largest sum, and the price of each row.

    Rows are groups of links: loads @ weights <= capacity. A column whose load costs less than 1
    at those prices would raise the sum.
    """
    solved = optimizer().linprog(
        -np.ones(loads.shape[1]), A_ub=loads, b_ub=capacity, bounds=(0, None), method="highs"
    )
    if solved.x is None:
        raise ArithmeticError(f"HiGHS: {solved.message}")
    return np.maximum(solved.x, 0.0), np.maximum(-solved.ineqlin.marginals, 0.0)


def heaviest(loads: Loads, capacity: Loads, column: int, total: float) -> Loads | None:
    """Weights with a sum of `total` in which one column has the most; None: none have that sum."""
    columns = loads.shape[1]
    cost = np.zeros(columns)
    cost[column] = -1.0
    solved = optimizer().linprog(
        cost,
        A_ub=np.vstack([loads, -np.ones(columns)]),
        b_ub=np.append(capacity, -total),
        bounds=(0, None),
        method="highs",
    )
    return None if solved.x is None else np.maximum(solved.x, 0.0)
