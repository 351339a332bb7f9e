"""Two models of a kernel's speed, from the instructions that one of its workgroups executed on the ISA
emulator.

``bound`` is a ceiling from instruction counts alone; ``schedule`` plays the waves of a compute unit
through issue ports, latencies and wait counters.  ``numbers`` is the one table behind both.  All results are
modelled: nothing here was measured on a GPU, and no figure may be presented as if it were.
"""
