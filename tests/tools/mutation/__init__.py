"""The share of single-instruction mutants of shipped kernels caught by the checks.

    python -m tests.tools.mutation

    mutants -> assembled -> static checks -> emulated suite, the kernel's own tests -> differential run

A mutant is one instruction of a wheel's code object, changed in place. The assembler makes it, and only one
of equal length counts.  Mutants that pass all checks run against the original on random calls. Those that
never differ are listed as not judged, those that differ as exact (exactness.py). The others survived.

``python -m tests.tools.mutation.canary`` gives the share caught by the check at first use. A user's machine
runs this check to prove its kernels.
"""
