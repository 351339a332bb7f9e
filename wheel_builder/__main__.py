"""``scripts/wheel-builder``."""

import sys

from wheel_builder.cli.main import main

sys.exit(main())
