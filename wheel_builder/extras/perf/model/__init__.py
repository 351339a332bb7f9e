"""The models of a compute unit: costs of instructions, LDS, memory, the busy bound and the schedule."""
