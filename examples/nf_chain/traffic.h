#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "request.h"
#include "rules.h"

namespace nf_chain {

// The requests of a run, encrypted, and what is to become of them.
class Traffic {
 public:
  // `size`: of a request's content. With a rule, a quarter of the requests are to be dropped, and others nearly match.
  Traffic(std::size_t count, std::size_t size, const std::optional<Rule>& denied,
          const std::string& key);

  std::size_t count() const { return count_; }
  // A message as it is sent, and how long it is.
  const char* message(std::size_t number) const {
    return messages_.data() + number * message_size();
  }
  std::size_t message_size() const;
  bool is_denied(std::size_t number) const { return has_rule_ && number % 4 == 0; }
  // The content of a request, of content_size() bytes.
  const char* content(std::size_t number) const { return contents_.data() + number * size_; }
  std::size_t content_size() const { return size_; }

 private:
  const std::size_t count_, size_;
  const bool has_rule_;
  std::vector<char> messages_, contents_;
};

}  // namespace nf_chain
