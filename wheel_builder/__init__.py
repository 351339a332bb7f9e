"""The pipeline that makes, checks and publishes the wheels; it is not part of them.

    matrix.yaml -> plan -> image -> device code -> wheel -> repair -> audit -> verify -> publish

``matrix`` parses, ``plan`` decides, ``stages`` act.  A stage takes values and returns an
``Artifact``: a folder with files and a manifest, keyed by everything that went into it
(``store``), so that a rerun skips what has not changed.  ``cli`` is the only place that
prints results and sets exit codes.
"""
