"""What fits together on this machine, and what users are told of it."""
