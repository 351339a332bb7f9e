"""Loading a wheel's library beside a real HIP runtime, in a container that has one and neither GPU nor torch.

``torch_stub.c`` takes torch's place: it keeps the operators that the library registers, so that ``probe.py``
can call them.
"""
