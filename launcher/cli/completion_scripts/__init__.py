"""What a shell reads: data, and no code of ours."""
