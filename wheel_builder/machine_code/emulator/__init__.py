"""Runs AMDGPU code objects on a CPU, instruction by instruction, and finds errors hidden by a GPU.

Its results are "executed on an ISA emulator". Nothing here runs on a GPU. ``core`` is the interpreter in C++,
reading the toolchain's disassembly (``disassembly.listing``). ``coverage`` lists unimplemented instructions
of given code, ``machine`` runs kernels, ``params`` packs their arguments, ``attention`` checks this project's
kernels against the numerics ``rule``, and ``command`` implements ``scripts/wheel-builder emulate``.
"""
