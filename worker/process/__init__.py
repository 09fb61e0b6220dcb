"""This task as a process: its supervisor, what it is doing, its lease, and the ports that it probes."""
