"""The container engine, base images, and the images for building and verifying wheels."""
