"""`python -m launcher`."""

from __future__ import annotations

import gc
import sys
import warnings

from launcher.cli import parser


def main() -> int:
    """Returns the command line's exit code. The process must end after it."""
    if not sys.warnoptions:
        # Warnings of libraries are for developers of this program: `python -W default` shows them.
        warnings.simplefilter("ignore")
    try:
        return parser.main()
    finally:
        # The garbage collector would run twice more, which takes a tenth of a submission's time.
        gc.freeze()


if __name__ == "__main__":
    sys.exit(main())
