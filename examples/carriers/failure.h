#pragma once

namespace carriers {

// Prints what failed, with errno, and ends the program.
[[noreturn]] void give_up(const char* what);
// The same where errno says nothing.
[[noreturn]] void give_up_plainly(const char* what);

}  // namespace carriers
