"""What runs in the builder image, as a user without rights and without network, on upstream's sources.

    python3 in_container.py generate SDIST OUT CK GENERATOR DIRECTIONS OPTION...
    python3 in_container.py compile COST LIMIT COMMAND...

``generate`` unpacks CK of the source distribution below OUT/ck and has its generator write OUT/kernels.
``compile`` runs a command and writes its CPU-seconds and the memory of its largest process to COST; none of
its processes may take more than LIMIT CPU-seconds (0: no limit).
Standard library only.
"""

import json
import os
import resource
import subprocess
import sys
import tarfile
from pathlib import Path, PurePosixPath


def generate(sdist: str, out: str, ck: str, generator: str, directions: str, *options: str) -> int:
    """Unpack, then generate the kernels of each direction."""
    folder = Path(out, "ck")
    with tarfile.open(sdist, "r:gz") as archive:
        members = []
        for member in archive:
            path = PurePosixPath(member.name)
            below = PurePosixPath(*path.parts[1:])
            if below.is_relative_to(ck) and (member.isfile() or member.isdir()):
                members.append(member.replace(name=str(below.relative_to(ck)), deep=False))
        # Refuses absolute names and .., which the names above could still have inside.
        archive.extractall(folder, members, filter="data")
    kernels = Path(out, "kernels")
    for direction in directions.split(","):
        argv = [sys.executable, str(folder / generator), "--api", direction, "--output_dir", str(kernels)]
        subprocess.run([*argv, *options], check=True)
    return 0


def compile_one(cost: str, limit: str, *command: str) -> int:
    """The command's exit status."""
    if seconds := int(limit):
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    child = subprocess.Popen(command)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    measured = {"cpu_seconds": round(used.ru_utime + used.ru_stime, 1), "peak_mib": used.ru_maxrss // 1024}
    Path(cost).write_text(json.dumps(measured), encoding="ascii")
    return child.returncode


if __name__ == "__main__":
    sys.exit(generate(*sys.argv[2:]) if sys.argv[1] == "generate" else compile_one(*sys.argv[2:]))
