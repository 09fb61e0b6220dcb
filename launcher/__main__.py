"""`python -m launcher`."""

from __future__ import annotations

import gc
import sys
import warnings

from launcher.cli import parser


def main() -> int:
    """The command line's exit code. For a process that then ends."""
    if not sys.warnoptions:
        # Those of libraries are for whoever works on this program: `python -W default` shows them.
        warnings.simplefilter("ignore")
    try:
        return parser.main()
    finally:
        # Python would look through everything twice more for garbage, a tenth of a submission's time.
        gc.freeze()


if __name__ == "__main__":
    sys.exit(main())
