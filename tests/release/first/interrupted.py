"""A command line with one command, which compiles device code into a folder. The test interrupts it."""

import sys
from pathlib import Path

from tests.conftest import CHECKOUT
from wheel_builder.base.store import Artifact, Store
from wheel_builder.build.device_code import compile_arch
from wheel_builder.cli.main import Command
from wheel_builder.cli.main import main as cli_main


def main():
    build, ref = Path(sys.argv[1]), sys.argv[2]
    image = Artifact(build, {"key": "", "facts": {"ref": ref, "image_id": ref}}, reused=True)

    def compile_one(_args):
        log = build / "log"
        compile_arch("gfx942", image=image, checkout=CHECKOUT, store=Store(build), jobs=1, log=log)

    sys.exit(cli_main(["compile"], [Command("compile", "compile device code", compile_one)]))
