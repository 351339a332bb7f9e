"""``python -m flash_attn_rocm.tuning.peer_process`` times PyTorch's attention: a bin a line."""

import json
import sys
from typing import Any

import torch

from flash_attn_rocm.tuning import bins, timing
from flash_attn_rocm.values.bins import Bin


def answer(given: dict[str, Any]) -> dict[str, Any]:
    """The median milliseconds of a bin, or why there are none."""
    where = torch.device(given["where"])
    try:
        return {"ms": _median(given, where), "words": ""}
    except RuntimeError as error:  # also no memory
        return {"ms": None, "words": str(error).strip().partition("\n")[0] or type(error).__name__}
    finally:
        if where.type == "cuda":
            torch.cuda.empty_cache()


def _median(given: dict[str, Any], where: torch.device) -> float:
    call = bins.sdpa_of(Bin(**given["bin"]), given["op"], where)
    return timing.median_of(call, where, runs=given["runs"])


def main() -> None:
    """Answer each line with a line of JSON."""
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
