"""What random calls with products of fp8 and of int8 share: sizes, windows, layouts, hidden keys."""

import torch

from flash_attn_rocm.suite.forward_cases import laid_out

# Up to 256 rows of a workgroup, in waves of 16 or 32.
ROWS = (1, 17, 32, 33, 64, 100, 255, 256, 257, 300)
HEADS = ((1, 1), (2, 1), (3, 3), (4, 2))
WINDOWS = ((-1, -1), (-1, 0), (-1, 0), (40, 7), (0, 0), (-1, 30), (70, -1))
LAYOUTS = ("contiguous", "heads first", "padded")
# Simulated, of normal numbers with up to 1,024 keys: 24 thousandths, of few keys less.
MOST_RMS, MANY = 0.03, 4096


def placed(x, layout, padding):
    """``x`` in one of LAYOUTS. ``padding``: elements behind each row of the layout "padded"."""
    if layout == "padded":
        return torch.nn.functional.pad(x, (0, padding))[..., : x.shape[-1]]
    return laid_out(x, layout)


def hidden(rows, keys, window):
    """Which keys (rows, keys) a window hides. The last query and the last key stand together."""
    at = torch.arange(keys) - (torch.arange(rows)[:, None] + keys - rows)
    left, right = window
    found = torch.zeros_like(at, dtype=torch.bool)
    found |= (at > right) if right >= 0 else False
    found |= (at < -left) if left >= 0 else False
    return found
