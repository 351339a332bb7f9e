"""What the models run: one workgroup of one kernel, with its useful work."""
