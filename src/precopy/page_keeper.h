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
  void set_floor(double) override {}
  std::chrono::nanoseconds end_round() override { return {}; }

 private:
  PageStore& store_;
};

}  // namespace ferry::precopy
