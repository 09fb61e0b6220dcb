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

    The chief of a ParameterServer run calls it at the end of its script, once everything is saved. The
    workers then leave with exit code 0, and the run ends. Under `python -m worker -- SCRIPT` the call is not
    needed, but it may be made earlier than the script's end. A second call does nothing; neither does a call
    in any other task or under another strategy. Outside of the launcher the call does nothing but say so on
    standard error.

    The call takes about 0.02 s for each task. It takes 5 s longer where a task hangs, and 20 s longer where a
    task is away; that task later waits for the chief in vain, and ends when its retries are used up or with
    the run's objects. It connects to the cluster if the script has not.

    Raises:
      RuntimeError: the launcher's environment variables are damaged; the message says which.
    """
    from worker import own_strategy_scripts

    own_strategy_scripts.release()


def alive() -> None:
    """Says that the script makes progress. A script's training loop calls it at every step.

    After its first call, the task is ended and tried again when `runPolicy.stallSeconds` pass without another
    call. A script that never calls it may be silent for ever: a hung worker then stops the script for good,
    because TensorFlow's coordinator waits without a limit. A call costs about a microsecond. Outside of the
    launcher it does nothing.

    Raises:
      RuntimeError: the launcher's environment variables are damaged; the message says which.
    """
    from worker import own_strategy_scripts

    own_strategy_scripts.alive()


def save_here() -> None:
    """Has this process read and write checkpoints itself, also those of variables on parameter servers.

    The chief of a ParameterServer run calls it at its beginning, before or after it imports TensorFlow, if
    its script is a plain command. `python -m worker -- SCRIPT` does it already. Without it, each parameter
    server writes its variables to its own disk, where a pod has no `modelDir`. A device given by
    `tf.train.CheckpointOptions(experimental_io_device=...)` has precedence. A second call does nothing.
    """
    from worker.tf_compat import checkpoint_io

    checkpoint_io.save_here()
