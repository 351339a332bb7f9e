"""Every command that README and the pages of docs/ show, with what types it.

Commands are the indented blocks of these documents, and the spans in the table of docs/release.md.
"""

import re

from tests.conftest import CHECKOUT

DOCUMENTS = ("README.md", *sorted(f"docs/{file.name}" for file in (CHECKOUT / "docs").glob("*.md")))
# By tests/release/test_walk.py, in a fresh clone or in a container that has the index; other values are the
# tests that type the command.
TYPED, IN_CONTAINER, DRY = "typed", "typed in a container", "typed with --dry-run"
INSTALLED = "tests/channel/index/test_documents.py"
WALK = {
    "scripts/release": "tests/release/conftest.py",
    "scripts/test": ".ci/run",
    "scripts/test --fast": "tests/fast/unit/test_tools.py",
    "python3 -m venv rocm-fa": "tests/fast/unit/docs/test_environment.py",
    ". rocm-fa/bin/activate": "tests/fast/unit/docs/test_environment.py",
    "python -m pip uninstall --yes torch": "tests/fast/unit/docs/test_environment.py",
    "pip install flash-attn-rocm --index-url <index>/public/simple": IN_CONTAINER,
    "python -m pip install flash-attn-rocm --index-url <index>/public/simple": IN_CONTAINER,
    "python -m flash_attn_rocm doctor": IN_CONTAINER,
    'python -c "import torch; print(torch.version.hip)"': IN_CONTAINER,
    "python -m pip uninstall --yes flash-attn-rocm": IN_CONTAINER,
    "pip install flash-attn --index-url <index>/public/simple": "tests/release/upstream/test_drop_in.py",
    "pip install flash-attn-3 --index-url <index>/public/simple": "tests/release/upstream/test_drop_in.py",
    "pip install --force-reinstall --no-deps flash-attn --index-url <index>/public/simple":
        "tests/channel/index/test_install.py",
    "python -m pip install --require-hashes --requirement requirements.txt "
    "--index-url <index>/public/simple": INSTALLED,
    "uv pip install flash-attn-rocm --index-url <index>/public/simple": INSTALLED,
    "uv pip install flash-attn-rocm --preview-features wheel-variants --index-url <index>/public/variants":
        "tests/channel/index/test_variants.py",
    "scripts/wheel-builder publish --variants --index DIR WHEEL": "tests/fast/unit/cli/test_main.py",
    "pip download --no-deps flash-attn-rocm --index-url <index>/public/simple": INSTALLED,
    "curl --fail --remote-name <index>/public/simple/flash-attn-rocm/WHEEL.verification.json": INSTALLED,
    "curl --fail --remote-name <index>/public/simple/flash-attn-rocm/WHEEL.provenance.json": INSTALLED,
    "sha256sum WHEEL": INSTALLED,
    "python -m flash_attn_rocm selftest": "tests/installed/fake_hip/test_selftest.py",
    "python -m flash_attn_rocm bench --output bench.csv --output bench.svg":
        "tests/installed/wheel/tools/test_bench.py",
    "pip install -v --no-build-isolation flash-attn 2>&1 | tee build.log":
        "tests/fast/unit/build_log/test_logs.py",
    "scripts/wheel-builder explain-log --follow build.log": "tests/fast/unit/build_log/test_command.py",
    "scripts/wheel-builder runtime-image --for-gpu --torch-index URL WHEEL":
        "tests/fast/unit/cli/test_main.py",
    "scripts/wheel-builder runtime-image": "tests/fast/unit/cli/test_main.py",
    "docker run rocm-fa:7.2-cpu": "tests/release/test_runtime_image.py",
    "docker run rocm-fa:7.2": "tests/release/test_runtime_image.py",
    "docker run --device /dev/kfd --device /dev/dri --group-add $(stat -c %g /dev/kfd) "
    "--group-add $(stat -c %g /dev/dri/renderD128) rocm-fa:7.2": "tests/release/test_runtime_image.py",
    "scripts/wheel-builder verify-provenance WHEEL": "tests/release/test_provenance.py",
    "scripts/wheel-builder rebuild WHEEL": "tests/release/test_provenance.py",
    "scripts/wheel-builder audit WHEEL": TYPED,
    "scripts/wheel-builder emulate WHEEL --arch gfx1100 --seqlen-q 17 --seqlen-k 17": TYPED,
    "scripts/wheel-builder verify WHEEL": "tests/release/test_verify.py",
    "scripts/wheel-builder index verify --index DIR": "tests/release/test_workflow.py",
    "scripts/wheel-builder upstream --arch gfx942 --shard 3/24 --give DIR":
        "tests/fast/unit/upstream/test_recipe.py",
    "scripts/wheel-builder upstream --arch gfx942 --take DIR": "tests/fast/unit/upstream/test_recipe.py",
    "scripts/wheel-builder upstream --arch gfx942 --take DIR --torch-index URL --to DIR":
        "tests/fast/unit/upstream/test_extension.py",
    "scripts/release --rocm 6.4 --archs gfx1030": DRY,
    "scripts/release --rocm 7.2": DRY,
    "scripts/release --all": DRY,
    "scripts/release --platforms linux,windows": DRY,
    "scripts/wheel-builder wheel --platforms windows --to DIR": DRY,
    "scripts/release --dry-run": TYPED,
    "plan [--json | --github]": TYPED,
    "image": DRY, "device-code": DRY, "wheel": DRY,
    "audit WHEEL": TYPED,
    "verify WHEEL [--runtimes V,V]": "tests/release/test_verify.py",
    "shim WHEEL": "tests/release/test_workflow.py",
    "verify-provenance WHEEL": "tests/release/test_provenance.py",
    "rebuild WHEEL": "tests/release/test_provenance.py",
    "emulate WHEEL --arch … --seqlen-q …": TYPED,
    "perf WHEEL": "tests/fast/unit/pipeline/test_perf.py",
    "publish WHEEL --index DIR": "tests/release/test_workflow.py",
    "upload WHEEL --repository-url URL": "tests/channel/index/test_upload.py",
    "serve": "tests/fast/unit/index/test_serve.py", "yank": "tests/fast/unit/cli/test_main.py",
    "index verify": "tests/release/test_workflow.py", "index pages": "tests/fast/unit/index/test_check.py",
    "docs": "tests/fast/unit/docs/test_site.py", "index docs --site DIR": "tests/release/test_workflow.py",
    "report add FILE": "tests/fast/unit/index/test_hardware.py",
    "runtime-image [--slim | --for-gpu] [WHEEL]": DRY,
    "explain-log [FILE]": "tests/fast/unit/build_log/test_command.py",
    "gate FILE …": "tests/fast/unit/upstream/test_gate.py",
    "upstream --arch A [--shard K/N]": "tests/fast/unit/upstream/test_recipe.py",
    "why [--html FILE]": "tests/fast/unit/upstream/test_why.py",
    "cost [--measure]": "tests/fast/unit/pipeline/test_cost.py",
    "drift": "tests/fast/unit/matrix/test_drift.py",
}  # fmt: skip


def commands(text):
    """The lines of a document's indented blocks, without comments."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for block in re.findall(r"^    (.*)", prose, re.MULTILINE):
        yield re.sub(r" +#.*", "", block)


def table(text):
    """The commands of a document's table of them."""
    _, _, rows = text.partition("| command (`scripts/wheel-builder …`)")
    for row in re.findall(r"^\| (`.*?`) \|", rows.partition("\n\n")[0], re.MULTILINE):
        yield from (span.replace("\\|", "|") for span in re.findall(r"`([^`]+)`", row))


def shown():
    """Every command of every document, once."""
    texts = [(CHECKOUT / name).read_text(encoding="utf-8") for name in DOCUMENTS]
    return list(dict.fromkeys(line for text in texts for line in (*commands(text), *table(text))))
