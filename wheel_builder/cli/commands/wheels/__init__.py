"""Commands that plan, build and release."""
