"""Fit a regression with JAX on the CPU, its gradients averaged through dlcpd, without torch:

    export DLCPD_STORE=$(mktemp -d)  # a folder for the ranks' rendezvous, new each time
    WORLD_SIZE=2 RANK=1 python examples/jax_numpy.py &
    WORLD_SIZE=2 RANK=0 python examples/jax_numpy.py

torchrun sets RANK and WORLD_SIZE as well: torchrun --nproc-per-node 2 examples/jax_numpy.py. On
several hosts the folder must be visible to all. Without JAX, numpy computes the gradients.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

import dlcp_client.numpy as dlcp

Array = NDArray[np.float32]
Gradient = Callable[[Array, Array, Array], Array]

FEATURES = 1000
SAMPLES = 4000  # per rank
STEPS = 60
RATE = 0.4


def gradient_by_numpy(weights: Array, inputs: Array, targets: Array) -> Array:
    """The gradient of the mean squared error."""
    errors = inputs @ weights - targets
    return 2 / len(targets) * (inputs.T @ errors)


def gradient_function() -> tuple[str, Gradient]:
    """The library's name and gradient function: JAX if it is installed, else numpy."""
    try:
        import jax  # noqa: PLC0415  # optional
    except ImportError:
        return "numpy (JAX is not installed)", gradient_by_numpy

    def loss(weights: Array, inputs: Array, targets: Array) -> Array:
        return ((inputs @ weights - targets) ** 2).mean()

    return f"JAX {jax.__version__}", jax.jit(jax.grad(loss))


def main() -> None:
    """Every rank has its own samples; all find the weights that generated them."""
    library, gradient = gradient_function()
    with dlcp.connect() as session:
        truth = np.random.default_rng(0).standard_normal(FEATURES, np.float32)
        own = np.random.default_rng(1 + session.rank)
        inputs = own.standard_normal((SAMPLES, FEATURES), np.float32)
        targets = inputs @ truth
        weights = np.zeros(FEATURES, np.float32)
        average = session.zeros(FEATURES)  # in the arena: the result is not copied
        for step in range(STEPS):
            # JAX arrays are read-only: dlcpd reads them, and writes the result to another array.
            session.world.all_reduce(gradient(weights, inputs, targets), "avg", into=average).wait()
            weights -= RATE * average
            if session.rank == 0 and step % 20 == 19:
                print(f"step {step + 1:2d}  error {np.abs(weights - truth).max():.6f}")
        if session.rank == 0:
            print(f"{session.world_size} ranks, gradients by {library}")


if __name__ == "__main__":
    main()
