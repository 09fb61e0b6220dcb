"""`python -m worker`: the command of every pod that the launcher makes for a program."""

import sys

from worker.runtime import main

sys.exit(main(sys.argv[1:]))
