#pragma once

#include "precopy/page_sink.h"
#include "precopy/page_store.h"

namespace ferry::precopy {

// Keeps what it takes in this process.
class PageKeeper : public PageSink {
 public:
  explicit PageKeeper(PageStore& store) : store_(store) {}

  void send_pages(std::int32_t process, const PageRanges& ranges,
                  std::span<const std::byte> content) override;
  void send_kept(std::int32_t process, const PageRanges& memory) override {
    store_.keep(process, memory);
  }
  void end_round() override {}

 private:
  PageStore& store_;
};

}  // namespace ferry::precopy
