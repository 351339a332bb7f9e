"""Collective operations, over torch.distributed."""
