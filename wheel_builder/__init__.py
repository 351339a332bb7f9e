"""The pipeline that makes, checks and publishes the wheels; it is not part of them.

    matrix.yaml -> plan -> image -> device code -> wheel (repaired) -> audit -> verify -> publish

The packages follow this flow, each importing only those before it (docs/dev/architecture.md).  A stage takes
values and returns an ``Artifact``: a folder with files and a manifest, keyed by everything that went into it,
so a rerun skips what has not changed.  ``cli`` is the only place that prints results and sets exit codes.
"""
