"""Constants and marks for all folders. Nothing here imports torch."""
