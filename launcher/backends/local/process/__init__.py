"""Processes on this machine, the namespaces that they run in, and their proxy."""
