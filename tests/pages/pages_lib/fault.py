"""What is wrong with a page, in one line that begins with where."""


class Fault(Exception):
    pass
