"""``python -m wheel_builder``."""

import sys

from wheel_builder.cli import main

sys.exit(main())
