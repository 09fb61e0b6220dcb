"""Makes a run's objects, and deletes them."""
