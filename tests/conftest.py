"""Every program that a test has made is proven to write over nothing that is still needed."""

from __future__ import annotations

import os

os.environ.setdefault("ANYSHAPE_VERIFY_PROGRAMS", "1")
