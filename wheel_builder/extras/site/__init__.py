"""The documentation site, made by mkdocs from the pages of docs/ and tables of facts.

``tables`` makes the tables from the files of facts, ``hooks`` inserts them while mkdocs reads a page,
``links`` checks the built site, ``build`` runs everything. ``mkdocs.yml`` lists the pages.
"""
