"""What Keras' fit, evaluate and predict take, as batches that every strategy can share."""
