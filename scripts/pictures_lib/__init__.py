"""What scripts/pictures is made of."""
