"""What a release is checked by: `.github/workflows/release.yml` runs it."""
