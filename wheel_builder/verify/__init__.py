"""Tests of a finished wheel: numerics, HIP errors, loading under HIP runtimes."""
