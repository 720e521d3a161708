"""`python -m hwgen`."""

from __future__ import annotations

import sys

from hwgen.cli import main

sys.exit(main())
