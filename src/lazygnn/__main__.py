"""`python -m lazygnn`."""

import sys

try:
    from lazygnn.cli import main

    main()
except KeyboardInterrupt:
    # while the command is still being loaded; what it does when it runs is its own matter
    sys.stderr.write("interrupted\n")
    sys.exit(130)
