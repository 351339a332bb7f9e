"""Compatibility of this machine's parts, and messages to users about it."""
