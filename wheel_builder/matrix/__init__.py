"""From matrix.yaml to a plan: what is built for which GPUs, and what is not and why."""
