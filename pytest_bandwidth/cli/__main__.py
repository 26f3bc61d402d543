"""Run the command line tool where its script is not on the path: ``python -m pytest_bandwidth.cli``."""

import sys

from pytest_bandwidth.cli.main import main

sys.exit(main())
