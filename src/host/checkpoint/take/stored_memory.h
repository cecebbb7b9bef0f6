#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "host/checkpoint/take/stored_bytes.h"
#include "host/move/source/group/cut.h"
#include "precopy/pages_file.h"
#include "precopy/pages_index.h"
#include "store/image_writer.h"
#include "store/store.h"

// The memory of a program in the store: the pages that CRIU has left out of its image. Pages that the program's last
// checkpoint in the same store has as well are not written again: its files get one more name in the new checkpoint,
// which needs no other one.
namespace ferry::host {

// What the store has of a program from its latest checkpoint there.
class FormerMemory {
 public:
  // `known`: the checkpoints in `directory`. Without one of the program, or one that can be read, there is nothing.
  // `key`: of the new checkpoint, if it is encrypted; what the store has from one with another key is of no use.
  FormerMemory(const std::string& directory, const std::vector<store::Store::Entry>& known,
               const Cut::Part& part, const std::string& host,
               const std::optional<store::ContentKey>& key);

  // Of its index; nothing: the page is not there.
  std::optional<precopy::PagesIndex::Page> find(std::int32_t process, std::uint64_t address) const;
  std::uint64_t bytes_of(const precopy::Layer& layer) const;
  // As ImageWriter::link_file.
  bool link(const precopy::Layer& layer, const precopy::Layer& as,
            store::ImageWriter& writer) const;

 private:
  void read(std::size_t program);

  std::optional<store::Checkpoint> checkpoint_;
  std::size_t program_ = 0;
  std::map<std::int32_t, precopy::PagesIndex> indices_;
};

// Bytes that write_memory() has to store, about.
std::uint64_t memory_to_store(const Cut::Part& part);
// Counts in `stored` what it stores, of which memory_to_store() is expected there. `need_wanted`: throws when the
// checkpoint is given up.
void write_memory(store::ImageWriter& writer, const Cut::Part& part, const FormerMemory& former,
                  StoredBytes& stored, const std::function<void()>& need_wanted);

}  // namespace ferry::host
