"""The stages of the pipeline, one module each; a stage never imports another stage."""
