"""Everything that TensorFlow, Keras and tf_keras keep private and this runtime uses: nowhere else."""
