"""steepest serve MODEL: answer HTTP requests with a model, and learn from them if asked to."""

from __future__ import annotations

import argparse
import os

import steepest as st
from steepest.serve.options import ServeOptions, flag

TOKEN = "STEEPEST_TOKEN"

# Flags that are numbers: what stands for the value, and what it does; type and default are those of the option.
LIMITS = {
    "workers": ("N", "number of processes (default: 1)"),
    "max_body": ("BYTES", "maximum size of a request (default: 16 MiB)"),
    "max_rows": ("N", "maximum number of rows in a request (default: 10,000)"),
    "timeout": ("SECONDS", "time limit of a request (default: 30)"),
    "keep_alive": ("SECONDS", "time until an idle connection is closed (default: 75)"),
    "max_connections": ("N", "maximum number of open connections (default: 1,000)"),
    "max_jobs": ("N", "maximum number of batches and learning requests in the queue (default: 256)"),
    "snapshot_rows": ("N", "number of learned rows between two snapshots (default: 100,000)"),
}
EXAMPLES = (
    "steepest serve reviews.steepest",
    "steepest serve reviews.steepest --port 9000 --workers 2",
    "steepest serve reviews.steepest --learn --log rows",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds all flags of the verb."""
    parser.add_argument("model", metavar="MODEL", help="model file, or an address such as s3://bucket/m.steepest")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; all but loopback need --token (default: 127.0.0.1)"
    )
    help = "port to listen on; 0 chooses a free one (default: 8000)"
    parser.add_argument("--port", type=int, default=8000, metavar="N", help=help)
    parser.add_argument(
        "--token", help=f"secret that requests must send as Authorization: Bearer TOKEN; also read from ${TOKEN}"
    )
    parser.add_argument("--learn", action="store_true", help="enable POST /learn, from which the model learns")
    parser.add_argument("--log", metavar="DIR", help="with --learn: directory for learned rows and snapshots")
    for name, (metavar, help) in LIMITS.items():
        usual = ServeOptions.__dataclass_fields__[name].default
        parser.add_argument(flag(name), type=type(usual), default=usual, metavar=metavar, help=help)


def run(options: argparse.Namespace) -> int:
    """Serves until it is stopped."""
    try:
        from steepest.serve.server import run as run_server
    except ImportError as error:
        raise st.ParameterError(f"serve needs {error.name}; install it with: pip install 'steepest[serve]'") from None
    given = {name: getattr(options, name) for name in ServeOptions.__dataclass_fields__}
    given["token"] = options.token or os.environ.get(TOKEN) or None
    return run_server(ServeOptions(**given))
