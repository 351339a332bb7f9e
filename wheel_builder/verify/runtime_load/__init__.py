"""Loading a wheel's library with a real HIP runtime, in a container without GPU and torch.

``torch_stub.c`` replaces torch: it keeps the operators registered by the library, so that ``probe.py`` can
call them.
"""
