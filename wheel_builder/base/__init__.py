"""Shared by every other package: errors, processes, words, safe writes, stored results."""
