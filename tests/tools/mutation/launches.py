"""The launches of one call: its results, or the words of its error, and its own findings.

Without PyTorch, so that tests/fast/unit runs it.
"""


def answered(target, run):
    """What ``run`` returns, or a list with the words of its error, and the findings of its launches.

    A launch that fails ends ``run`` before its report is read. It is read here: the next call would count its
    findings as its own.
    """
    try:
        found = run()
    except RuntimeError as error:
        found = [str(error)]
        target.shown.launched(target.runtime.report().launches)
    findings, target.shown.findings = target.shown.findings, []
    return found, findings


def flat(results):
    """The results one after the other. Calls of fp8 return out and log-sum-exp of each sequence as a pair."""
    for each in results:
        yield from each if isinstance(each, tuple) else (each,)
