"""Predicts with a trained model, and writes the predictions: `spec.mode: Predict`."""
