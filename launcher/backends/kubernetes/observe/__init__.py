"""Watches a run: its objects, its logs, its events, and its past."""
