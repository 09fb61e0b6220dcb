"""The script of script-for-the-chief-only.yaml."""
