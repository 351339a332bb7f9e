"""An index on loopback."""

import argparse

from wheel_builder.cli.command import Command
from wheel_builder.cli.options import index_option
from wheel_builder.index.simple.serve import make_server
from wheel_builder.matrix.model import LOCAL_INDEX


def run(args: argparse.Namespace) -> None:
    with make_server(args.index.absolute(), args.port) as server:
        print(
            f"serving {args.index} at http://{server.server_name}:{server.server_port}/ until Ctrl-C",
            flush=True,
        )
        server.serve_forever()


def options(parser: argparse.ArgumentParser) -> None:
    index_option(parser, LOCAL_INDEX)
    parser.add_argument(
        "--port", type=int, default=8000, metavar="N", help="port; 0 picks a free one (default: 8000)"
    )


COMMAND = Command("serve", "serve an index on loopback", run, (options,))
