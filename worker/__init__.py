"""What runs inside every pod: a TensorFlow server, the coordinator, or the evaluation.

`python -m worker` reads TF_CONFIG and branches on the task's type, as TensorFlow's parameter-server
tutorial does. Importing this package imports neither TensorFlow nor the launcher.
"""
