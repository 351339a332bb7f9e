"""Logs of builds, explained: what is done and left, what each object is, what failed and what to do.

A log is untrusted: it is read as a stream, in bounded memory, and what it holds is shown with its control
characters escaped.
"""
