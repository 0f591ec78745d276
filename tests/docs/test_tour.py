"""The tour runs, and says what it should."""

import subprocess
import sys
from pathlib import Path

TOUR = Path(__file__).parents[2] / "docs" / "tour.py"


def test_the_tour_compiles_once_for_all_its_shapes():
    done = subprocess.run([sys.executable, str(TOUR)], capture_output=True, text=True, check=True)
    assert "1 compile served 4 shapes" in done.stdout
    assert "guards: s00 == s10, s01 == s11" in done.stdout
