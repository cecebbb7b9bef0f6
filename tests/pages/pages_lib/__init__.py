"""What tests/pages/pages_test is made of: blocks of a page, where they run, whether they print what the page says."""
