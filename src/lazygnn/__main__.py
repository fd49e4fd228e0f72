"""Runs the command line: `python -m lazygnn`."""

import sys

try:
    from lazygnn.cli import main

    main()
except KeyboardInterrupt:
    # during imports; a running command handles the signal itself
    sys.stderr.write("interrupted\n")
    sys.exit(130)
