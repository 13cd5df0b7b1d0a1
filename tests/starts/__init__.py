"""Python programs that tests start are forks of a process that has imported their modules.

Importing takes a daemon and its engine two seconds of CPU time, and a rank with torch three: more
than most tests take. A fork takes 20 ms.

`plugin` is a plugin of pytest: a program of `images` that a test starts with `subprocess` forks
from a `server`, and is a child of the process of pytest. Programs that it starts are forks of it.
Those of a test marked `executed` are executed: tests of how a program starts, of what it imports,
of its memory, and of what /proc shows of it.
"""
