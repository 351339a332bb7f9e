"""Two models of a kernel's speed, from the instructions executed by one workgroup on the ISA emulator.

``model.bound`` is a ceiling from instruction counts alone. ``model.schedule`` plays the waves of a compute
unit through issue ports, latencies and wait counters. All results are modelled, and must be presented as
modelled: no figure was measured on a GPU.
"""
