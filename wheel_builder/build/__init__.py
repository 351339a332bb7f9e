"""From sources to a repaired wheel with its SBOM, and the runtime image made of it."""
