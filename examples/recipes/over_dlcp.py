"""Run a program that takes its backend from PyTorch's table, with dlcpd as that backend:

    torchrun --nproc-per-node 8 examples/recipes/over_dlcp.py -m torchtitan.train OPTIONS
    torchrun --nproc-per-node 8 examples/recipes/over_dlcp.py RECIPE.py --config CONFIG

TorchTitan and the recipes of torchtune have no option for the backend.
"""

import runpy
import sys

import torch.distributed as dist

import dlcp_client  # noqa: F401  # registers the backend "dlcp"


def main() -> None:
    """Run the program as if it were started itself."""
    for device in ("cpu", "cuda"):
        dist.Backend.default_device_backend_map[device] = "dlcp"
    if sys.argv[1] == "-m":
        sys.argv = sys.argv[2:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = sys.argv[1:]
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
