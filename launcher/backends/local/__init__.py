"""Runs the manifests that Kubernetes would get as processes on this machine.

    backend      what the command line calls; runs in the launcher
    following    reads a run's state and logs while it goes on
    log_growth   when each line of a log was printed
    metrics      where the metrics of tasks are read
    preflight    what this machine cannot do: refused, or named
    expired_runs removes runs whose time to live is over
    ports        free ports, no two runs the same
    store        the run's directory: files, lock, control pipe
    file_format  what its files hold, and what is wrong with one that does not
    supervisor/  a process of its own, one a run: starts, stops and counts pods; standard library only
    pod/         a pod template -> command, environment, volumes and addresses of a process
    process/     sessions, signals and namespaces of processes, and their way out

`LocalBackend.submit` writes the run's directory, takes its lock and starts the guard, which forks the
supervisor; both hold the lock. Commands read the run's status from `state.json`, and change the run by
writing a word into its control pipe.
"""
