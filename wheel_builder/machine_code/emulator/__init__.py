"""Runs AMDGPU code objects on a CPU, instruction by instruction, and finds errors that a GPU would hide.

Its results are "executed on an ISA emulator"; nothing here runs on a GPU.  ``core`` is the interpreter in
C++, which reads the toolchain's disassembly (``disassembly.listing``), ``coverage`` lists the instructions of
given code that it lacks, ``machine`` runs kernels, ``params`` packs their arguments, ``attention`` holds this
project's kernels to the numerics ``rule``, and ``command`` implements ``scripts/wheel-builder emulate``.
"""
