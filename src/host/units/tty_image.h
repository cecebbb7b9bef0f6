#pragma once

#include <string>

namespace ferry::host {

// Changes the images in this folder: terminals that stay behind (CRIU's EXT_TTY) are nobody's
// controlling terminals any more. CRIU 4.2 restores no controlling terminal of a session whose
// leader, a shell, is not in the images. Throws Failure when the image is not as CRIU writes it.
//
//   tty-info.img = 0x54564319:32 magic:32 { length:32 message[length] }    little-endian
void forget_sessions_of_terminals(const std::string& images);

}  // namespace ferry::host
