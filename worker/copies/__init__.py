"""Copies of a training in the memory of its tasks: a killed process costs seconds, without any storage."""
