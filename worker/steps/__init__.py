"""The step of a replica, the transfer of its variables, and the number of steps in an execution."""
