"""Temporary arrays find the memory of the last ones."""

import subprocess
import sys

PROGRAM = """
import resource
import numpy as np
from dlcpd.io.heap import keep_warm

def faults():
    begin = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        np.ones(65536, np.float32) + np.ones(65536, np.float32)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begin

keep_warm()
faults()
print(faults())
"""


def test_temporaries_are_not_given_back_each_time() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    assert int(done.stdout) < 1000  # 100 times 192 pages without
