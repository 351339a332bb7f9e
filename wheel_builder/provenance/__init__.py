"""A wheel's provenance statement, its verification record, and rebuilding it."""
