"""The pages that installers read (PEP 503 and 691), and a server for them."""
