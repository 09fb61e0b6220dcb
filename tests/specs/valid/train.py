"""What script-for-the-chief-only.yaml runs."""
