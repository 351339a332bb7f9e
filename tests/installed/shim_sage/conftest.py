"""The distribution sageattention, installed by pip along with flash-attn-rocm, on CPU tensors.

Needs no GPU, ROCm or network: the PyTorch implementation answers.
"""

import pytest
import torch


def pytest_configure():
    torch.set_num_threads(1)  # the tensors are small: threads cost more than they give


def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning"))
