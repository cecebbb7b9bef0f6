#pragma once

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "store/content_key.h"
#include "store/recipients.h"

namespace ferry::host {

// The content keys of encrypted checkpoints that this ferryd has taken, in memory only. Checkpoints in one directory
// for the same recipients have the same one: so the next one can read what the former one says of its pages, and have
// files of it, without a private key. All threads.
class ContentKeys {
 public:
  store::ContentKey key_for(const std::string& directory, const store::Recipients& recipients);

 private:
  std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, store::ContentKey> keys_;
};

}  // namespace ferry::host
