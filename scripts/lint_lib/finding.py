"""What is wrong in a line of a file, and what to do about it."""

import dataclasses


@dataclasses.dataclass(frozen=True, order=True)
class Finding:
    file: str
    line: int
    text: str

    def __str__(self):
        return f"{self.file}:{self.line}: {self.text}"
