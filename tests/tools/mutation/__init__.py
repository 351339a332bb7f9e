"""How many single-instruction mutants of shipped kernels the checks catch.

    python -m tests.tools.mutation

    mutants -> assembled -> static checks -> emulated suite, the kernel's own tests -> differential run

A mutant is one instruction of a wheel's code object, changed in place: the assembler makes it, and only one
of the same length counts.  Mutants that no check kills run against the original on random calls: those that
never differ are listed as not judged, the others survived.

``python -m tests.tools.mutation.canary`` says how many of them the check at first use sees, by which a user's
machine proves its own kernels.
"""
