"""`python -m tfplace` is the same as `tfplace`."""

import sys

from tfplace.cli import main

sys.exit(main())
