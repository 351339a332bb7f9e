"""From matrix.yaml to a plan: wheels and their GPUs, and reasons for everything left out."""
