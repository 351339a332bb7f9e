"""Commands outside of a release."""
