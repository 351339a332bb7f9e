"""A user's first steps: install from an index with pip, then run attention. Prints one JSON line.

Usage: python first_use.py REQUIREMENT INDEX_URL
"""

import json
import subprocess
import sys
import time

FIRST_CALL = """
import warnings, torch, flash_attn_rocm
warnings.simplefilter("ignore", flash_attn_rocm.FlashAttnFallbackWarning)
q, k, v = (torch.randn(1, 33, heads, 64, dtype=torch.float16) for heads in (4, 2, 2))
out = flash_attn_rocm.flash_attn_func(q, k, v, causal=True)
want = torch.nn.functional.scaled_dot_product_attention(
    *(x.transpose(1, 2).double() for x in (q, k, v)), is_causal=True, enable_gqa=True
).transpose(1, 2)
print(flash_attn_rocm.__version__, (out.double() - want).abs().max().item())
"""


def main(requirement: str, index_url: str) -> None:
    begin = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--no-cache-dir", "--index-url", index_url, requirement],
        check=True, stdout=sys.stderr,
    )  # fmt: skip
    installed = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", FIRST_CALL], check=True, capture_output=True, text=True, cwd="/"
    )
    version, error = done.stdout.split()
    result = {
        "version": version,
        "max_error": float(error),
        "install_seconds": round(installed - begin, 2),
        "seconds_to_first_result": round(time.monotonic() - begin, 2),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
