"""The static package index: publishing, its pages, the page where users find their wheel."""
