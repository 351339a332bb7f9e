"""The container engine, base images, and the images that wheels are built and verified in."""
