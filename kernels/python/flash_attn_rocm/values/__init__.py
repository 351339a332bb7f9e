"""Constants and marks that every other room may use.  Nothing here imports torch."""
