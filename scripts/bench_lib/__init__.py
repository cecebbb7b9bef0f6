"""What scripts/bench measures: a module for each part, whose `measure(contest)` returns every single figure."""
