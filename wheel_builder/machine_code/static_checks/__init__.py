"""Static checks of shipped machine code, never executed here.

``check.check_wheel`` runs them all over a finished wheel. The text of ``llvm-objdump`` and ``llvm-readelf``
comes from ``disassembly.listing``. Every decision is a pure function of this text.
"""
