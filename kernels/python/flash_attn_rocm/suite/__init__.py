"""Fuzz cases of every kernel, the corpus to run, and the reference implementation that judges the results."""
