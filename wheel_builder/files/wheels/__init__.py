"""Wheels as files: the archive, its names and what lies beside it, its variants."""
