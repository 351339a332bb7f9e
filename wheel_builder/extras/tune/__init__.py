"""Tuning: candidates for a kernel's rows, compiled, modelled, executed, and written as a proposal.

``space`` has the candidates, ``rules`` refuses those that cannot work, ``ranking`` compares modelled figures,
``proposal`` writes the result: all without side effects. ``compiling`` and ``measuring`` make figures,
``run`` goes on until its budget is spent.
"""
