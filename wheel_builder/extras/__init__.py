"""Tools independent of a release. Stages never import them."""
