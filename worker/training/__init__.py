"""Training: the task that trains, and one loop over the epochs, with two executors of its steps."""
