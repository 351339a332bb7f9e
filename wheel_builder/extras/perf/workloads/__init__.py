"""The inputs of the models: one workgroup of one kernel, with its useful work."""
