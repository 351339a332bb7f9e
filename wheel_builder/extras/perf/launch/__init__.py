"""The launch model: all workgroups of a launch on all compute units and dies of a GPU."""
