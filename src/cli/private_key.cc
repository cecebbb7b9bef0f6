#include "cli/private_key.h"

#include "cli/files.h"
#include "store/content_key.h"

namespace ferry::cli {

store::PrivateKey private_key(const std::string& file) {
  std::string text = read_file(file);
  store::PrivateKey key(text, file);
  store::wipe(&text);
  return key;
}

}  // namespace ferry::cli
