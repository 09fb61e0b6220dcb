"""What runs inside every pod: a TensorFlow server, the coordinator, or the evaluation.

`python -m worker` reads TF_CONFIG and branches on the task's type, as TensorFlow's parameter-server
tutorial does. Importing this package imports neither TensorFlow nor the launcher.

`release`, `alive` and `save_here` are for scripts that build their own strategy:

    import worker
    ...                  # the script's own training
    worker.release()
"""

__all__ = ["alive", "release", "save_here"]


def release() -> None:
    """Ends every worker and parameter server that runs `python -m worker`: the training is over.

    For the chief of a ParameterServer run, at the end of its script, once everything is saved. The
    workers leave with exit code 0, and the run with them. Under `python -m worker -- SCRIPT` it is not
    needed, and may be called earlier. A second call does nothing, nor does one in any other task or under
    another strategy; outside of the launcher it says so on standard error and does nothing else.

    Takes about 0.02 s a task, and 5 s longer where one hangs, 20 s where one is away, which then leaves after
    `runPolicy.chiefLostSeconds`. Connects to the cluster where the script has not.

    Raises:
      RuntimeError: the launcher's environment variables are damaged; it says which.
    """
    from worker import scripts

    scripts.release()


def alive() -> None:
    """Says that the script makes progress; for a script's training loop, at every step.

    From its first call on, the task is ended and tried again when `runPolicy.stallSeconds` pass without
    another call. Without any, a script may be silent for ever: a hung worker then stops it for good, because
    TensorFlow's coordinator waits without a limit. A call costs about a microsecond. Outside of the launcher
    it does nothing.

    Raises:
      RuntimeError: the launcher's environment variables are damaged; it says which.
    """
    from worker import scripts

    scripts.alive()


def save_here() -> None:
    """Has this process read and write checkpoints itself, also of variables that are on parameter servers.

    For the chief of a ParameterServer run whose script is a plain command, at its beginning, before or after
    TensorFlow is imported. Under `python -m worker -- SCRIPT` it is so already. Else each parameter server
    would write its variables to its own disk, where a pod has no `modelDir`. A device that
    `tf.train.CheckpointOptions(experimental_io_device=...)` names goes before. A second call does nothing.
    """
    from worker.tf_compat import checkpoint_io

    checkpoint_io.save_here()
