"""What scripts/lint is made of: one file for each check, with check(repository, files)."""
