"""Loading a wheel's library beside a real HIP runtime, in a container that has one and neither GPU nor torch.

``torch_standin.c`` takes torch's place: it keeps what the library registers, so that ``probe.py`` can call
it.
"""
