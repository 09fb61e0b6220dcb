"""The servers of a ParameterServer run, and how its chief takes them in, follows, and releases them."""
