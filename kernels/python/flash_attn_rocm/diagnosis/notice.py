"""Reactions to unserved calls: a warning for each reason, or an error in strict mode."""

import warnings

from flash_attn_rocm.diagnosis import doctor, survey
from flash_attn_rocm.machine import environment
from flash_attn_rocm.machine.environment import STRICT as STRICT_VARIABLE
from flash_attn_rocm.machine.requirements import numbered
from flash_attn_rocm.values.tracing import constant_when_traced


class FlashAttnFallbackWarning(UserWarning):
    """No kernel serves a call: the PyTorch implementation or slower kernels answer."""


class FlashAttnResetWarning(UserWarning):
    """A call may keep a GPU busy until Windows resets it."""


class FlashAttnUnsupportedError(RuntimeError):
    """No kernel serves a call, and strict mode is on."""


UNBOUNDED = (
    "window_size: with more queries than keys, flash_attn ignores a right bound of seqlen_k or more, and so "
    "does this call: rows see keys behind it. This warning appears once.\n"
    "  next: flash_attn_rocm.attention(q, k, v, window_size=...) keeps the bound; pass -1 for no bound"
)
CALLERS = 8  # frames from the warning to the caller of flash_attn_func


class _State:
    strict: bool | None = None
    warned: set[str] = set()  # noqa: RUF012 - the one instance is the class


def set_strict(strict: bool | None) -> None:  # noqa: FBT001 - it reads well: set_strict(True)
    """Choose the reaction to unserved calls.

    True: raise. False: fall back. None: follow the environment, where ``FLASH_ATTN_ROCM_STRICT=1`` means
    raise.
    """
    _State.strict = strict


def is_strict() -> bool:
    """Whether unserved calls raise. A wrong value in the environment is a ValueError."""
    if _State.strict is not None:
        return _State.strict
    return environment.switch(STRICT_VARIABLE, default=False)


def forget_warnings() -> None:
    """Warn again about reasons with an earlier warning."""
    _State.warned.clear()


def with_mismatches(message: str) -> str:
    """The message, with the doctor's steps if this machine has an AMD GPU."""
    facts = survey.collect(ask_gpus=False)
    steps = doctor.mismatches(facts)
    if not steps or (facts.kfd.state == "absent" and not facts.driver_gpus):
        return message
    return "\n".join([message, "Problems on this machine:", *numbered(steps)])


def tell_slower(what: str, reason: str, stacklevel: int) -> None:
    """Warn about slower kernels, once for each reason. Strict mode permits them."""
    if reason not in _State.warned:
        message = f"{what}: {reason}. They are slower; this warning appears once for each reason."
        warnings.warn(message, FlashAttnFallbackWarning, stacklevel=stacklevel + 1)
        _State.warned.add(reason)


def tell_long(kind: str, message: str) -> None:
    """Warn about a launch that may take too long, once for each kind of call. Strict mode permits it."""
    if kind not in _State.warned:
        warnings.warn(message, FlashAttnResetWarning, stacklevel=2)
        _State.warned.add(kind)


@constant_when_traced
def tell_unbounded() -> bool:
    """Warn once that rows see keys outside of window_size (UNBOUNDED). Strict mode permits it.

    Under torch.compile the warning comes during tracing.
    """
    if UNBOUNDED not in _State.warned:
        warnings.warn(UNBOUNDED, UserWarning, stacklevel=CALLERS)
        _State.warned.add(UNBOUNDED)
    return True


@constant_when_traced
def fall_back(reason: str, stacklevel: int) -> bool:
    """Warn once for each reason. In strict mode raise FlashAttnUnsupportedError.

    Under torch.compile this happens during tracing.
    """
    if is_strict():
        message = (
            f"no kernel serves this call: {reason}\n"
            f"  next: change the call, or let the PyTorch implementation answer: unset {STRICT_VARIABLE}, "
            "flash_attn_rocm.set_strict(False)"
        )
        raise FlashAttnUnsupportedError(with_mismatches(message))
    if reason not in _State.warned:
        message = (
            f"the PyTorch implementation answers, because no kernel serves this call: {reason}. "
            "It is slower; this warning appears once for each reason."
        )
        if not _State.warned:
            message = with_mismatches(message)
        warnings.warn(message, FlashAttnFallbackWarning, stacklevel=stacklevel)
        _State.warned.add(reason)
    return True
