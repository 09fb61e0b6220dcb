"""All uses of what TensorFlow, Keras and tf_keras keep private. No other package uses a private name."""
