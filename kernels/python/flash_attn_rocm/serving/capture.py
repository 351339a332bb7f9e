"""Operations that a graph capture forbids."""

import torch

from flash_attn_rocm.arguments.normal_form import Inputs
from flash_attn_rocm.diagnosis.notice import FlashAttnUnsupportedError

USER_NAMES = {"seqused_k": "cache_seqlens", "leftpad_k": "cache_leftpad"}


def refuse_capture(inputs: Inputs) -> None:
    """Raise FlashAttnUnsupportedError if a capturing device has lengths or indices to read on the host.

    HIP's error would only report a forbidden copy.
    """
    given = zip(Inputs._fields[4:10], inputs.integers, strict=True)
    names = [USER_NAMES.get(name, name) for name, x in given if x is not None and is_capturing(x.device)]
    if names:
        message = (
            "a graph is being captured, and the PyTorch implementation has to read "
            f"{', '.join(names)} on the host\n"
            "  next: capture a call that a kernel serves (flash_attn_rocm.explain says why none serves this "
            "one), or make this call outside of the graph"
        )
        raise FlashAttnUnsupportedError(message)


def is_capturing(device: torch.device) -> bool:
    """Whether the device's current stream is being captured into a graph."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()
