"""The process of this task: its supervisor, its current activity, its lease, and the ports that it probes."""
