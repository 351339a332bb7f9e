"""Two models of a kernel's speed, from the instructions that one of its workgroups executed on the ISA
emulator.

``model.bound`` is a ceiling from instruction counts alone; ``model.schedule`` plays the waves of a compute
unit through issue ports, latencies and wait counters.  All results are modelled: nothing here was measured on
a GPU, and no figure may be presented as if it were.
"""
