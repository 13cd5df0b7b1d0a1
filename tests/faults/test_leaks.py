"""What a process holds, and what it holds more than before."""

import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import replace

import pytest

from dlcp_lab.emulation.scratch import temporary_folders_apart
from dlcp_lab.faults.leaks import (
    ProcessResources,
    folders,
    grown,
    held,
    shared_memory,
    strays,
    usage,
)

QUIET = ProcessResources(pid=1, descriptors=10, threads=2, children=1, private=30_000_000, shared=0)
SLACK = 1000


def test_nothing_grew() -> None:
    assert not list(grown({"a": QUIET}, {"a": QUIET}, SLACK))
    less = replace(QUIET, descriptors=9, private=0)
    assert not list(grown({"a": QUIET}, {"a": less}, SLACK))


@pytest.mark.parametrize("name", ["descriptors", "threads", "children", "shared"])
def test_growth_is_named(name: str) -> None:
    more = replace(QUIET, **{name: getattr(QUIET, name) + 1})
    [line] = grown({"a": QUIET}, {"a": more}, SLACK)
    assert line.startswith(f"a: {name} ")


def test_private_memory_may_grow_a_little() -> None:
    assert not list(grown({"a": QUIET}, {"a": replace(QUIET, private=30_001_000)}, SLACK))
    assert list(grown({"a": QUIET}, {"a": replace(QUIET, private=30_001_001)}, SLACK))


def test_a_new_process_is_not_compared_with_an_old_one() -> None:
    assert not list(grown({"a": QUIET}, {"a": replace(QUIET, pid=2, descriptors=99)}, SLACK))
    assert not list(grown({}, {"a": QUIET}, SLACK))


def test_a_process_that_has_ended_holds_nothing_though_nobody_waited_for_it() -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    try:
        assert os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT) is not None
        assert held([("zombie", child)]) == {}
    finally:
        os.waitpid(child, 0)


def test_usage_of_this_process() -> None:
    before = usage(os.getpid())
    with socket.socket():
        assert usage(os.getpid()).descriptors == before.descriptors + 1
    assert before.threads >= 1
    assert before.private > 0
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert list(held([("me", os.getpid()), ("gone", gone.pid)])) == ["me"]


def test_shared_memory_counts_a_memfd_once_and_what_it_occupies() -> None:
    before = shared_memory([os.getpid()])
    descriptor = os.memfd_create("test")
    other = os.dup(descriptor)
    try:
        os.ftruncate(descriptor, 1 << 30)
        assert shared_memory([os.getpid()]) == before
        os.pwrite(descriptor, b"x" * 8192, 0)
        assert shared_memory([os.getpid(), os.getpid()]) == before + 8192
    finally:
        os.close(descriptor)
        os.close(other)


def test_a_stray_process_is_found_by_its_mark() -> None:
    mark = f"stray-of-{os.getpid()}"
    waits = [sys.executable, "-c", "print(flush=True); input()", mark]
    with subprocess.Popen(waits, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()  # until here its command may still be empty
        assert [line for line in strays([mark], ()) if f"process {child.pid}:" in line]
        assert not strays([mark], {child.pid})
    assert not strays([mark], ())


def test_folders_are_those_of_this_project_that_are_made_here() -> None:
    before = tempfile.gettempdir()
    with tempfile.TemporaryDirectory(prefix="dlcpd-of-somebody-"), temporary_folders_apart():
        assert folders() == set()
        with tempfile.TemporaryDirectory(prefix="dlcpd-"), tempfile.TemporaryDirectory():
            assert len(folders()) == 1
    assert tempfile.gettempdir() == before
