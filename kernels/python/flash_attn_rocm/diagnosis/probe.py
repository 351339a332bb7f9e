"""``python -m flash_attn_rocm.diagnosis.probe flash`` prints whether PyTorch's own attention works."""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from flash_attn_rocm.diagnosis.facts import Fused

BACKENDS = {
    "flash": (SDPBackend.FLASH_ATTENTION, torch.backends.cuda.can_use_flash_attention),
    "memory-efficient": (SDPBackend.EFFICIENT_ATTENTION, torch.backends.cuda.can_use_efficient_attention),
}
SIZES = (2, 2, 128, 64)  # batch, nheads, seqlen, headdim
# Share of the largest value. Broken results are off by as much as the values. bf16 rounds by 2**-9.
ALLOWED = 2**-4


def probe(name: str, device: torch.device) -> Fused:
    """Compare PyTorch's kernel with the formula, forward and backward, followed by another operation."""
    backend, usable = BACKENDS[name]
    for dtype in (torch.float16, torch.bfloat16):
        for causal in (False, True):
            tensors = [x.to(device, dtype).requires_grad_() for x in _tensors()]
            parameters = torch.backends.cuda.SDPAParams(*tensors, None, 0.0, causal, False)  # noqa: FBT003
            if device.type == "cuda" and not usable(parameters):
                return Fused(name, "absent")
            case = f"{str(dtype).removeprefix('torch.')}{' causal' if causal else ''}"
            try:
                wrong = [*_wrong(tensors, backend, causal=causal)]
            except RuntimeError as error:
                return Fused(name, "fails", f"{case}: {str(error).strip().splitlines()[0]}")
            if wrong:
                return Fused(name, "fails", f"{case}: {', '.join(wrong)} wrong")
    return Fused(name, "works")


def _tensors() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(SIZES, generator=generator) for _ in range(3)]


def _wrong(tensors: list[Tensor], backend: SDPBackend, *, causal: bool) -> Iterator[str]:
    """The names of results that differ from the formula's."""

    def fused(*x: Tensor) -> Tensor:
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(*x, is_causal=causal)

    exact = [x.detach().cpu().float().requires_grad_() for x in tensors]
    found = _results(fused, tensors)
    for name, one, other in zip(
        ("out", "dq", "dk", "dv"), found, _results(lambda *x: _formula(*x, causal=causal), exact), strict=True
    ):
        if not (one - other).abs().max() <= ALLOWED * other.abs().max():  # NaN is wrong, too
            yield name


def _results(attend: Callable[..., Tensor], tensors: list[Tensor]) -> list[Tensor]:
    out = attend(*tensors)
    gradients = torch.autograd.grad(out, tensors, torch.ones_like(out))
    # These operations run other kernels, which would raise a delayed error.
    return [(x * 1.0).float().cpu() for x in (out.detach(), *gradients)]


def _formula(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -torch.inf)
    return torch.softmax(scores, -1) @ v


def main(arguments: list[str]) -> None:
    """Print the result for the attention named in ``arguments``, as JSON."""
    print(json.dumps(asdict(probe(arguments[0], torch.device("cuda")))))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
