"""Copies a run's files from its claim: by a pod that lives as long as that takes."""
