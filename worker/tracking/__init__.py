"""Follows a run in an experiment tracker: MLflow's server, or what a program's own calls log to."""
