"""Arguments of a call: their checks, and the normal form shared by all functions."""
