"""Runs the manifests that Kubernetes would get as processes on this machine.

    backend     what the command line calls; runs in the launcher
    following   reads a run's state and logs while it goes on
    paths       what leads out of a volume is refused, as Kubernetes does
    sweeping    what has had its time is removed
    preflight   what this machine cannot do: refused, or named
    board       TensorBoard, while somebody looks at it
    ports       free ports, no two runs the same
    starting    a guard that waits for its order
    store       the run's directory: files, lock, control pipe
    fileformat  what its files hold, and what is wrong with one that does not
    -----       below here in a process of its own, one a run; standard library only
    guard       outlives the supervisor by as long as it takes to kill what it left
    namespaces  a network of the run's own
    views       the files that a task sees: its volumes at their mountPath
    downloads   the way out of it: an HTTP proxy
    supervisor  the event loop: starts, stops and counts pods
    livepod     a pod while it runs: its Pod object and its process
    view        the Jobs as Kubernetes would show them
    leftovers   what a run without a supervisor may have left
    jobs        what a Job's controller decides; no processes, no clock
    policy      podFailurePolicy, successPolicy, sets of indexes
    pods        a Job's template and an index -> command, environment, directories
    environment the environment as the kubelet computes it
    translation addresses and paths of the cluster -> of this machine
    processes   sessions, signals, and finding what belongs to a pod

The way of a run: `LocalBackend.submit` writes the run's directory, takes its lock and starts the guard, which
forks the supervisor; both hold the lock. Whoever wants to know reads `state.json`; whoever wants something
writes a word into the control pipe.
"""
