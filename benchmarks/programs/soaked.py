"""The program of a task of `benchmarks.soak`, without TensorFlow: soaked.py SECONDS. It leaves behind all
that a program may: an open port, temporary files, and a process in its own session that would live for an
hour.
"""

import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time

config = json.loads(os.environ["TF_CONFIG"])
address = config["cluster"][config["task"]["type"]][config["task"]["index"]]
server = socket.create_server(("", int(address.rpartition(":")[2])))
with tempfile.NamedTemporaryFile(delete=False) as file:
    file.write(bytes(1 << 16))
left = subprocess.Popen(["sleep", "3600"], start_new_session=True)
print(f"listens on {address}, and has started {left.pid}", flush=True)
time.sleep(random.uniform(0.5, 1.0) * float(sys.argv[1]))
