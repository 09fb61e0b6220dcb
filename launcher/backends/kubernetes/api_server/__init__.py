"""Talks to an API server: credentials, connections, requests, streams, errors and port forwards."""
