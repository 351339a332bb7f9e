"""The package's requirements of the machine, and stored findings about it, without torch."""
