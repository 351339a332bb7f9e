"""The arguments of a call: their checks, and the one form that all functions bring them into."""
