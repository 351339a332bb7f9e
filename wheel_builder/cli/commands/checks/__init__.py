"""Commands that check finished wheels."""
