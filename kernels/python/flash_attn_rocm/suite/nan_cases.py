"""Gradient calls whose tensors are NaN everywhere.

Rows of dq without a visible key and rows of dk and dv hidden from all queries must be 0. In kernels they
share tiles with NaN rows.
"""

import torch

from flash_attn_rocm.suite import backward_cases
from flash_attn_rocm.suite.backward_cases import kernels_of


class Call(backward_cases.Call):
    """The tensors of a case: a list entry per sequence."""

    def normal(self, rows, heads, head_dim=None):
        return torch.full((rows, heads, head_dim or self.case.head_dim), torch.nan, dtype=self.dtype)

    def queries_and_keys(self, rows, keys):
        return self.normal(rows, self.case.heads[0]), self.normal(keys, self.case.heads[1])

    def forward(self):
        return [torch.zeros_like(dout) for dout in self.dout], [
            torch.zeros(x.shape[1], len(x)) for x in self.q
        ]

    def check(self, target, shown):
        """Launch the case. A gradient must be NaN for visible rows and 0 for the others."""
        *found, _ = self.run(target)
        lengths = (self.case.rows, self.case.keys, self.case.keys)
        _, by_keys, _ = kernels_of(self.case.kernel)
        for b, gradients in enumerate(zip(*map(self.parts, found, lengths), strict=True)):
            visible = self.visible(b)
            of_queries, of_keys = visible.any(1), visible.any(0)
            for what, kernel, one, seen in zip(
                ("dq", "dk", "dv"),
                (str(self.case.kernel), by_keys, by_keys),
                gradients,
                (of_queries, of_keys, of_keys),
                strict=True,
            ):
                assert one[seen].isnan().all(), f"{what}: a number where all that is seen is NaN"
                assert (one[~seen] == 0).all(), f"{what}: not 0 where nothing is seen"
                shown.compared(kernel, f"{what} {self.case!r}", 0.0, 0.0)
