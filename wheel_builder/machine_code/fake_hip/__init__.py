"""Our own HIP runtime: it executes launches on the ISA emulator, on host memory.

``libamdhip64.so.7`` (the C++ files here and the emulator's core) has exactly the entry points called by the
wheel's host library. LD_PRELOAD injects it: the library's weak HIP symbols are found in the process' global
scope, so tests run the unmodified shipped wheel. Never call its results "run on a GPU".

``control`` runs inside the verify container, where the rest of the pipeline is missing. It needs only the
wheel.
"""
