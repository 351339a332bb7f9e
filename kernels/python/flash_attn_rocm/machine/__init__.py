"""What this package needs of the machine, and what it remembers of it, without torch."""
