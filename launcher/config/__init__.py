"""The cluster file: its text, its fields and their types, its JSON Schema."""
