"""Where things lie that many tests read."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
TESTS: Final = ROOT / "tests"
SPECS: Final = TESTS / "specs"
