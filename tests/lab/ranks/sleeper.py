"""A program that only ends when it is made to."""

import signal
import sys

if __name__ == "__main__":
    sys.stdout.write("ready")
    sys.stdout.flush()
    signal.pause()
