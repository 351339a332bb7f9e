"""The statement beside each wheel, the record of its verification, and building it again."""
