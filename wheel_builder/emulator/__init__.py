"""Runs AMDGPU code objects on a CPU, instruction by instruction, and looks for errors that a GPU would hide.

What it says is "executed on an ISA emulator"; nothing here runs on a GPU.  ``core`` is the interpreter in
C++, ``build`` compiles it, ``disassembly`` gives it the toolchain's disassembly, ``coverage`` tells what it
lacks for given code, ``machine`` runs kernels, ``attention`` runs this project's kernels against a float64
reference, ``command`` is what ``python -m wheel_builder emulate`` does.
"""
