"""`python -m pumice` is `pumice`."""

import sys

from pumice.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
