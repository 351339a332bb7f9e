"""Wheels as files: the archive, its names, the files next to it, its variants."""
