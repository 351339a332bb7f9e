"""The rows that ``python -m flash_attn_rocm tune --apply`` kept for this machine, by regime of calls.

One file per GPU, known by arch, name and compute units: others that run the same machine code were not
measured. Its name covers the wheel, the driver and HIP, too: with another one, the wheel's own rows are used
again.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import torch

from flash_attn_rocm.library import candidates, checked, host
from flash_attn_rocm.library.candidates import Candidate, Candidates, CandidatesError
from flash_attn_rocm.machine import environment, remembered, tuning
from flash_attn_rocm.machine.remembered import CODED, FP8, INT8, MASKED, MASKED_GRADIENTS, Family
from flash_attn_rocm.values import kinds, paths
from flash_attn_rocm.values.given import Given
from flash_attn_rocm.values.tuning import REGIMES

FORMAT, MOST_BYTES = 3, 1 << 20
COMMAND = "python -m flash_attn_rocm tune --apply"
# The family whose check at first use launches a kernel, by its op.
WORK = {
    **{kinds.ATTENDING[path]: "" for path in paths.FORWARD if path not in (paths.LATENT, paths.REFERENCE)},
    kinds.ATTENDING[paths.FP8]: FP8,
    kinds.ATTENDING[paths.INT8]: INT8,
    kinds.ATTENDING[kinds.MASKED]: MASKED,
    kinds.ATTENDING[kinds.CODED]: CODED,
    **dict.fromkeys(kinds.LAUNCHES[kinds.GRADIENTS[kinds.UNEVEN]], paths.SEPARATE),
    **dict.fromkeys(kinds.LAUNCHES[kinds.GRADIENTS[paths.SEPARATE]], paths.SEPARATE),
    **dict.fromkeys(kinds.LAUNCHES[kinds.GRADIENTS[kinds.MASKED]][1:], MASKED_GRADIENTS),
    kinds.GRADIENTS[paths.FUSED]: paths.FUSED,
}


class Gpu(NamedTuple):
    """A GPU as times know it. ``arch`` has no features in its name."""

    arch: str
    name: str
    compute_units: int


# Why a kept row is not in use, by GPU and kernel.
REFUSED: dict[tuple[Gpu, str], str] = {}


class Winner(NamedTuple):
    """A kept row. ``gain``: the shipped row's time divided by its own, geometric mean over calls."""

    row: str
    shipped: str
    gain: float


class Kept(NamedTuple):
    """A kept row's code, and the regime of the calls that it serves."""

    candidate: Candidate
    regime: str


Winners = Mapping[str, Mapping[str, Winner]]  # by kernel and regime


class Rows(NamedTuple):
    """Kept rows, and the digest of their list of candidates. ``problem``: why the file is not used."""

    digest: str = ""
    winners: Winners = MappingProxyType({})
    problem: str = ""


def folder() -> Path:
    """Where kept rows and the progress of ``tune`` are."""
    return remembered.folder().parent / "tuned"


def file_of(gpu: Gpu) -> Path:
    """The file of kept rows."""
    return folder() / f"rows-{key_of(gpu)}.json"


def any_kept() -> bool:
    """Whether this machine may have kept rows, of any GPU and wheel."""
    with suppress(OSError, RuntimeError):  # RuntimeError: the user has no home folder
        return any(folder().glob("rows-*.json"))
    return False


def key_of(gpu: Gpu) -> str:
    """A digest of everything that times depend on."""
    what = "\n".join((*remembered.identity(), torch.version.hip or "", *map(str, gpu)))
    return hashlib.sha256(what.encode()).hexdigest()[:32]


def keep(gpu: Gpu, digest: str, found: Winners) -> Path:
    """Keeps the winners of kernels. Other kernels keep theirs. Raises OSError."""
    path, former = file_of(gpu), kept(gpu)
    forget_findings(gpu.arch)  # the rows were checked just now
    every = {**(former.winners if former.digest == digest else {}), **found}
    winners = {name: own for name, own in every.items() if own}
    if winners:
        kernels = {
            name: {regime: winner._asdict() for regime, winner in own.items()}
            for name, own in winners.items()
        }
        values = {"format": FORMAT, "gpu": gpu._asdict(), "candidates": digest, "kernels": kernels}
        remembered.write_text(path, json.dumps(values, indent=1))
    else:
        path.unlink(missing_ok=True)
    kept.cache_clear()
    return path


def forget_findings(arch: str) -> None:
    """Kept rows are checked again. Raises OSError."""
    for path in folder().glob("*.json"):
        found = remembered.read(path)
        if found and host.gfx_of(found.arch) == arch:
            path.unlink(missing_ok=True)


@cache
def kept(gpu: Gpu) -> Rows:
    """The kept rows in this GPU's file. None without a file, or of one that is not as ``keep`` writes it."""
    try:
        return _rows(checked.parsed(checked.bounded(file_of(gpu), MOST_BYTES)), gpu)
    except (FileNotFoundError, NotADirectoryError, RuntimeError):  # the last: the user has no home folder
        return Rows()
    except OSError as error:
        return Rows(problem=error.strerror or str(error))
    except ValueError as error:
        return Rows(problem=str(error))


def _rows(value: Given, gpu: Gpu) -> Rows:
    found = checked.fields("the file", value, "format", "gpu", "candidates", "kernels")
    checked.equal("format", found["format"], FORMAT)
    checked.equal("gpu", found["gpu"], gpu._asdict())
    digest = checked.text("candidates", found["candidates"], 64, checked.DIGEST)
    kernels = checked.entries("kernels", found["kernels"], checked.MOST_KERNELS)
    return Rows(digest, {name: _winners(name, own) for name, own in kernels.items()})


def _winners(kernel: str, value: Given) -> Mapping[str, Winner]:
    checked.text("a kernel", kernel, 64, checked.KERNEL)
    own = checked.entries(kernel, value, len(REGIMES))
    return {regime: _winner(f"{kernel}: {regime[:20]}", regime, winner) for regime, winner in own.items()}


def _winner(what: str, regime: str, value: Given) -> Winner:
    checked.expect(what, regime, fits=regime in REGIMES, expected=f"one of {', '.join(REGIMES)}")
    fields = checked.fields(what, value, *Winner._fields)
    row, shipped = (
        checked.text(f"{what}: {name}", fields[name], 8, checked.ROW) for name in ("row", "shipped")
    )
    return Winner(row, shipped, checked.positive(f"{what}: gain", fields["gain"]))


def rows_of(family: Family, gpu: Gpu) -> tuple[Kept, ...]:
    """The kept rows of a family's kernels. A row without its distribution is refused, in words."""
    code = host.code_of(family.arch)
    digest, winners, _ = kept(gpu)
    mine = {each.name for each in host.instances() if _belongs(each, family, code)} & winners.keys()
    if not mine:
        return ()
    try:
        found = the_same(candidates.find(code), digest)
        return tuple(
            Kept(found.kernels[name].candidates[winner.row], regime)
            for name in sorted(mine)
            for regime, winner in winners[name].items()
        )
    except CandidatesError as error:
        refuse(gpu, mine, str(error).splitlines()[0])
    except KeyError:
        refuse(gpu, mine, f"{tuning.distribution(code)} does not have it")
    return ()


def _belongs(instance: host.Instance, family: Family, code: str) -> bool:
    own = (instance.dtype, instance.head_dim, WORK.get(instance.op))
    return code in instance.archs and own == (family.dtype, family.head_dim, family.work)


def the_same(found: Candidates, digest: str) -> Candidates:
    """``found``, if rows were kept from it. Raises CandidatesError."""
    if found.digest == digest:
        return found
    message = f"the installed candidates are others than those that {COMMAND} measured"
    raise CandidatesError(message)


def refuse(gpu: Gpu, kernels: Iterable[str], why: str) -> None:
    """The wheel's rows of these kernels are used instead, and ``explain`` says why."""
    REFUSED.update({(gpu, kernel): why for kernel in kernels})


def accept(gpu: Gpu, kernels: Iterable[str]) -> None:
    """The kept rows of these kernels are in use, also if an earlier check refused them."""
    for kernel in kernels:
        REFUSED.pop((gpu, kernel), None)


def words(gpu: Gpu, kernel: str, shipped: str, regime: str) -> str:
    """For ``explain``: a kernel's kept row for calls of a regime, or what is wrong with the file, or ""."""
    found = kept(gpu)
    if found.problem:
        return f"; the rows kept by {COMMAND} are not used: {file_of(gpu)}: {found.problem}; next: {COMMAND}"
    winner = found.winners.get(kernel, {}).get(regime)
    if winner is None:
        return ""
    off = "" if environment.switch(environment.CANARY, default=True) else f"{environment.CANARY}=0"
    if why := off or REFUSED.get((gpu, kernel)):
        return f"; row {winner.row}, kept by {COMMAND}, is not used: {why}"
    where = f"{gpu.name or gpu.arch} with {gpu.compute_units} compute units"
    return f"; row {winner.row} is used instead of {shipped}, kept by {COMMAND} for {regime} calls on {where}"
