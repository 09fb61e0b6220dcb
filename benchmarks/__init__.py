"""Benchmarks that print tables. They are no tests; each says which figure its result should stay below."""
