"""Training: the task that trains, and a loop for each kind of program and strategy."""
