"""What carries a plan out: `base` says what every backend does, the other modules do it."""
