"""A HIP runtime of our own that executes launches on the ISA emulator, on host memory.

``libamdhip64.so.7`` (the C++ files here and the emulator's core) has exactly the entry points that the
wheel's host library calls, and is injected from outside with LD_PRELOAD: the library's weak HIP symbols find
it in the process' global scope, so the wheel that runs is the one that ships.  Nothing it does is "run on a
GPU".

``control`` is used inside the verify container, which does not have the rest of the pipeline: it needs only
the wheel.
"""
