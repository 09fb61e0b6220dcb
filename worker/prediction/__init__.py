"""Predicts with a model that was trained, and writes what comes of it: `spec.mode: Predict`."""
