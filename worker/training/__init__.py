"""Trains: the task that does it, and a loop for each kind of program and strategy."""
