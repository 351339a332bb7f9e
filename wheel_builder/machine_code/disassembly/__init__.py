"""Code objects as text, parsed: kernels, operations, counters, resources and occupancy."""
