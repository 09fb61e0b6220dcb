"""What a run's objects say of it: its root object, its Jobs and pods, Kueue's word, the cluster's clock."""
