"""Functions of matrices, and Fourier transforms: other dimensions may be divided."""

from typing import Final

import torch

from .call import Call
from .rule import ONE, Rule, Rules, named, rule, without

aten = torch.ops.aten
MATRIX: Final = 2  # dimensions


def of_matrices(call: Call) -> Rule | None:
    """A batch of matrices, each of which stays whole. None: operands have other batches."""
    batch = call.first.shape[:-MATRIX]
    if any(one.shape[: len(batch)] != batch for one in call.operands):
        return None
    outer, sizes = named(batch)
    given, made = (
        [() if one is None else outer + ((),) * (one.dim() - len(outer)) for one in several]
        for several in (call.operands, call.results)
    )
    return rule(given, made, sizes, passes=True)


def fourier(call: Call) -> Rule:
    """The transformed dimensions stay whole."""
    dims, sizes = named(call.first.shape)
    kept = without(dims, [at % call.first.dim() for at in call.option("dim")])
    return rule([kept], [kept], sizes, linear=ONE, passes=True)


def distances(call: Call) -> Rule | None:
    """(p, z), (r, z) -> (p, r), in equal batches; the gradient of the first is a sum over r."""
    x, y = (call.operands[call.names.index(name)] for name in ("x1", "x2"))
    if x.shape[:-MATRIX] != y.shape[:-MATRIX]:
        return None
    batch, sizes = named(x.shape[:-MATRIX])
    sizes |= {"p": x.shape[-2], "r": y.shape[-2]}
    p, r = (((name,) if sizes[name] > 1 else ()) for name in "pr")
    of = {"x1": (*batch, p, ()), "x2": (*batch, r, ())}
    operands = [of.get(name, (*batch, p, r)) for name in call.names]
    is_forward = call.target == aten._cdist_forward.default
    return rule(operands, [(*batch, p, r) if is_forward else of["x1"]], sizes)


RULES: Final[Rules] = {
    aten._cdist_forward.default: distances, aten._cdist_backward.default: distances,
    **dict.fromkeys(
        [aten._fft_c2c.default, aten._fft_r2c.default, aten._fft_c2r.default], fourier
    ),
    **dict.fromkeys(
        [
            aten.linalg_inv_ex.default, aten.linalg_cholesky_ex.default, aten.cholesky.default,
            aten._linalg_solve_ex.default, aten._linalg_svd.default, aten._linalg_eigh.default,
            aten._linalg_det.default, aten._linalg_slogdet.default, aten.linalg_qr.default,
            aten.linalg_matrix_exp.default, aten.linalg_lu_factor_ex.default,
            aten.linalg_solve_triangular.default,
        ],
        of_matrices,
    ),
}  # fmt: skip
