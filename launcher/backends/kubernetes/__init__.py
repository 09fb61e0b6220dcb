"""Runs the manifests on a Kubernetes cluster, in which nothing of the launcher's is installed.

    backend      what the command line calls
    tensorboard  finds the pod of a run's TensorBoard
    deploy/      makes a run's objects, and deletes them
    observe/     follows a run: its objects, logs and events, and its past
    model_files/ copies files of a run's model directory to this machine
    preflight/   what a cluster must have and allow
    run_end/     stops what is left when the primary has ended, and a run that cannot go on
    state/       what was seen of a run -> `status.RunStatus`, with the reasons why something does not start
    api_server/  requests and streams to one API server, and how they get there; errors as one message

`api_server.credentials` is the only module that imports `kubernetes`.

The primary Job owns all other objects, so that deleting it deletes the run. Nothing is kept
on this machine.
"""
