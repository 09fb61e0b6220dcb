"""The process of this task: its word to the supervisor, its current activity, its memory, and its lease."""
