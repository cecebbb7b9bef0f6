"""What scripts/test is made of."""
