"""Explains build logs: progress, the meaning of each object, causes of failure, next steps.

A log is untrusted. It is read as a stream in bounded memory, and its control characters are shown escaped.
"""
