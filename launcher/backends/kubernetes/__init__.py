"""Runs the manifests on a Kubernetes cluster, with nothing of ours installed in it.

    backend     what the command line calls
    submission  makes a run's objects, or finds that they are there already
    removal     ends a run's objects, and waits until they are gone
    following   a run's updates and logs while it goes on
    janitor     stops what is left when the primary has ended, and a run that cannot go on
    stopping    ends a run's Jobs so that their record stays
    events      what the cluster says about a run
    board       finds the pod of a run's TensorBoard
    tunnel      a port of this machine that leads to a pod's
    doctor      whether a run can be submitted and carried out
    session     the picture of one run, kept up to date by watches and log streams
    picture     what was seen of a run -> `status.RunStatus`, with the reasons why something does not start
    watching    one list and watch, for as long as it takes
    tailing     one pod's log
    differences two values -> what differs
    client      requests and streams to one API server
    streams     an answer that goes on
    transport   how they get there
    resources   where the server has each kind
    parallel    several requests at the same time
    refusals    an answer that says no -> one message with what to do
    understanding an answer that is not as Kubernetes' are -> one message
    clock       the cluster's times -> this machine's
    rights      the least Role that is enough
    versions    which Kubernetes is new enough
    settings    how long is waited
    connection  kubeconfig -> an API server, the way to it, and credentials
    kubeconfig  its files as one, each field of its type
    addresses   servers and proxies, checked before anything is sent to them
    credentials a user -> headers and certificates; the only module that imports `kubernetes`
    plugin      a user's login command

The way of a run: the primary Job is made first and owns all else, so that its deletion is the run's, by
whomever. Nothing is kept on this machine.
"""
