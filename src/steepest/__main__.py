"""`python -m steepest` is the command line."""

import sys

from steepest.cli import main

sys.exit(main())
