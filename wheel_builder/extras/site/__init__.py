"""The documentation site: the pages of docs/ and tables made from the files that hold the facts, by mkdocs.

``tables`` makes the tables, ``hooks`` puts them into the pages when mkdocs reads them, ``links`` checks what
was built, ``build`` does all of it.  ``mkdocs.yml`` lists the pages.
"""
