"""Commands beside a release."""
