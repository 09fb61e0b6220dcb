"""Talks to an API server: who we are, the way there, requests, streams, errors and port forwards."""
