"""Commands that write, serve and mend an index."""
