"""A rank whose interpreter refuses to import torch: RANK, WORLD_SIZE and DLCPD_STORE say who it is.

With the name of a program in its arguments it runs that instead.
"""

import runpy
import sys


class NoTorch:
    """As where torch is not installed."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}")


def reduces() -> None:
    import dlcp_client.numpy  # noqa: PLC0415  # after the finder is in place

    with dlcp_client.numpy.connect() as session:
        array = session.zeros(1000)
        array += session.rank + 1
        session.all_reduce(array).wait()
        sys.stdout.write(f"{array.sum()}\n")


if __name__ == "__main__":
    sys.meta_path.insert(0, NoTorch())
    if len(sys.argv) > 1:
        runpy.run_path(sys.argv[1], run_name="__main__")
    else:
        reduces()
    assert "torch" not in sys.modules
