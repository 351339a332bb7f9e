"""Static checks of shipped machine code, without executing it.

``check.check_wheel`` runs them all over a finished wheel.  The text of ``llvm-objdump`` and
``llvm-readelf`` comes from ``disassembly.listing``; everything that decides is a pure function over that
text.
"""
