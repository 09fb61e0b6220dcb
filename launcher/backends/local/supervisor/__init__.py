"""The process that carries out a run's Jobs on this machine, and the guard that outlives it."""
