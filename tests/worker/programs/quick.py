"""A script that does not need TensorFlow: `quick.py HOW [VALUE]`."""

import argparse
import atexit
import sys
import threading
import time

from tiny_words import WORDS  # from the script's own folder

import worker

parser = argparse.ArgumentParser()
parser.add_argument("how", choices=WORDS)
parser.add_argument("value", nargs="?")
given = parser.parse_args()


def later() -> None:
    time.sleep(0.5)
    print("thread ends", flush=True)


atexit.register(print, "atexit ran", flush=True)
if given.how == "exit":
    sys.exit(int(given.value) if given.value.isdigit() else given.value)
elif given.how == "thread":
    threading.Thread(target=later).start()
elif given.how == "silent":
    time.sleep(7)
    print("tensorflow" in sys.modules, flush=True)
elif given.how == "alive":
    worker.alive()
    time.sleep(600)
