"""Harnesses that print tables. No figure here is a test; each says what it should stay under."""
