"""Candidates for users' GPUs, and what follows from reports about them: better rows, errors of the models."""
