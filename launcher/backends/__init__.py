"""Carries out a plan. `base` says what every backend does."""
