"""steepest serve MODEL: answer HTTP requests with a model, and learn from them if asked to."""

from __future__ import annotations

import argparse
import os

import steepest as st

TOKEN = "STEEPEST_TOKEN"

EXAMPLES = (
    "steepest serve reviews.steepest",
    "steepest serve reviews.steepest --port 9000 --workers 2",
    "steepest serve reviews.steepest --learn --log rows",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds all flags of the verb."""
    parser.add_argument("model", metavar="MODEL", help="model file, or its address")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; any but loopback needs --token (default: 127.0.0.1)"
    )
    parser.add_argument("--port", type=int, default=8000, metavar="N", help="port; 0 takes a free one (default: 8000)")
    parser.add_argument(
        "--token", help=f"requests need the header Authorization: Bearer TOKEN; also read from ${TOKEN}"
    )
    parser.add_argument("--learn", action="store_true", help="allow POST /learn, by which the model learns")
    parser.add_argument("--log", metavar="DIR", help="with --learn: directory of learned rows and snapshots")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="number of processes (default: 1)")
    parser.add_argument(
        "--max-body", type=int, default=16 << 20, metavar="BYTES", help="largest request (default: 16 MiB)"
    )
    parser.add_argument(
        "--max-rows", type=int, default=10_000, metavar="N", help="most rows in a request (default: 10,000)"
    )
    parser.add_argument(
        "--timeout", type=float, default=30.0, metavar="SECONDS", help="time limit of a request (default: 30)"
    )
    parser.add_argument(
        "--keep-alive",
        type=float,
        default=75.0,
        metavar="SECONDS",
        help="time until an idle connection is closed (default: 75)",
    )
    parser.add_argument(
        "--max-connections", type=int, default=1000, metavar="N", help="most open connections (default: 1,000)"
    )
    parser.add_argument(
        "--max-jobs",
        type=int,
        default=256,
        metavar="N",
        help="most batches and learning requests in the queue (default: 256)",
    )
    parser.add_argument(
        "--snapshot-rows",
        type=int,
        default=100_000,
        metavar="N",
        help="learned rows between two snapshots (default: 100,000)",
    )


def run(options: argparse.Namespace) -> int:
    """Serves until it is stopped."""
    try:
        from steepest.serve.options import ServeOptions
        from steepest.serve.server import run as run_server
    except ImportError as error:
        raise st.ParameterError(f"serve needs {error.name}; install it with: pip install 'steepest[serve]'") from None
    given = {name: getattr(options, name) for name in ServeOptions.__dataclass_fields__}
    given["token"] = options.token or os.environ.get(TOKEN) or None
    return run_server(ServeOptions(**given))
