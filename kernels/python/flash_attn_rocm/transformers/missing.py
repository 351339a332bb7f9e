"""Explains a failed import of transformers, or one that is too old, beginning with the original error.

transformers imports its parts at first use, and its errors name only the part. The cause is in the original
exception, for example a torchvision built for another torch.
"""

import traceback

NEEDED = "this needs transformers with AttentionInterface and AttentionMaskInterface"
UPGRADE = "python -m pip install --upgrade transformers"
REMOVE = "python -m pip uninstall --yes {}"
# Distributions compiled for one release of torch. With another release they fail.
COMPILED = ("torchvision", "torchaudio", "torchao", "xformers")


def explained(error: BaseException) -> str:
    """The message for users."""
    root = _root(error)
    if culprit := _culprit(root):
        return (
            f"{culprit} does not work with this torch, and transformers imports it: "
            f"{type(root).__name__}: {root}\n"
            f"  next: {REMOVE.format(culprit)}, then install the {culprit} of this torch's release and "
            "build, from the index that torch is from"
        )
    first = "" if root is error else f"; transformers says: {error}"
    return f"{NEEDED}: {root}{first}\n  next: {UPGRADE}"


def _root(error: BaseException) -> BaseException:
    """The original exception of the chain."""
    seen = {id(error)}
    while (earlier := error.__cause__ or error.__context__) is not None and id(earlier) not in seen:
        seen.add(id(earlier))
        error = earlier
    return error


def _culprit(root: BaseException) -> str:
    """The distribution whose file raised it, or whose operator it names."""
    files = [frame.filename for frame in traceback.extract_tb(root.__traceback__)]
    for name in COMPILED:
        inside = any(f"/{name}/" in file.replace("\\", "/") for file in files)
        if f"{name}::" in str(root) or (inside and not isinstance(root, ModuleNotFoundError)):
            return name
    return ""
