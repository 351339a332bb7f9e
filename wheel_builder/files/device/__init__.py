"""Device code in files: the compiled library, its offload bundles, their code objects."""
