"""What ends the script: one line that says what failed, on what, and what to do."""


class Failure(Exception):
    pass
