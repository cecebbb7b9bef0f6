#include "host/checkpoint/take/stored_memory.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <ranges>
#include <span>
#include <utility>

#include "host/checkpoint/own_folder.h"
#include "store/digest.h"

namespace ferry::host {
namespace {

using precopy::kPage;
using precopy::Layer;
using precopy::PageRanges;
using precopy::PagesIndex;

// When more would be linked, or read at a restart, all pages are written anew.
constexpr std::size_t kMostLayers = 16;
constexpr std::uint64_t kMostOfPages = 2;  // bytes of all layers, beside those of the pages

std::optional<std::size_t> file_of(const store::Program& program, const std::string& name) {
  const auto found = std::find_if(program.files.begin(), program.files.end(),
                                  [&](const store::ImageFile& file) { return file.name == name; });
  if (found == program.files.end()) return std::nullopt;
  return static_cast<std::size_t>(std::distance(program.files.begin(), found));
}

// Of programs of one name the one with these processes is meant, and rather that of this host.
std::optional<std::size_t> program_of(const store::Manifest& manifest, const Cut::Part& part,
                                      const std::string& host) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < manifest.programs.size(); ++i) {
    const auto& program = manifest.programs[i];
    const auto has_index = [&](const auto& entry) {
      return file_of(program, precopy::index_file(entry.first)).has_value();
    };
    if (program.name != part.program) continue;
    if (std::none_of(part.left_out.begin(), part.left_out.end(), has_index)) continue;
    if (!best || program.host == host) best = i;
  }
  return best;
}

bool is_written_with(const store::Manifest& manifest, const std::optional<store::ContentKey>& key) {
  return key ? manifest.is_of(*key) : !manifest.encryption;
}

// A page of the new checkpoint.
struct Page {
  std::uint64_t address = 0;
  std::optional<std::uint32_t>
      layer;  // of the former one, which has it as it is; nothing: none has
  precopy::PageDigest digest{};
};

class Process {
 public:
  Process(store::ImageWriter& writer, const Cut::Part& part, std::int32_t process,
          const FormerMemory& former, StoredBytes& stored, const std::function<void()>& need_wanted)
      : writer_(writer),
        memory_(*part.memory),
        process_(process),
        wanted_(part.left_out.at(process)),
        former_(former),
        stored_(stored),
        need_wanted_(need_wanted) {}

  void write() {
    compare();
    link();
    write_layer();
    write_index();
    // The files have more than the pages: heads, and pages of former layers that are not of this checkpoint.
    const std::uint64_t more = bytes_ - wanted_.bytes();
    stored_.expect(more);
    stored_.add(more);
  }

 private:
  // `after_piece`: called after the pages that were read at once.
  template <typename Each, typename AfterPiece>
  void for_each_page(Each each, AfterPiece after_piece) {
    for (const auto& [start, end] : wanted_) {
      for (std::uint64_t at = start; at < end;) {
        need_wanted_();
        const auto content =
            memory_.get(process_, at, std::min(end, at + precopy::PageSink::kMostPages * kPage));
        for (std::size_t done = 0; done < content.size(); done += kPage) {
          each(at + done, content.subspan(done, kPage));
        }
        after_piece();
        at += content.size();
      }
    }
  }

  void compare() {
    pages_.reserve(wanted_.bytes() / kPage);
    std::uint64_t same = 0;  // bytes of the piece
    const auto compare_page = [&](std::uint64_t address, std::span<const std::byte> content) {
      Page& page = pages_.emplace_back(Page{address, {}, store::short_digest_of(content)});
      const auto known = former_.find(process_, address);
      if (!known || known->digest != page.digest) return;
      page.layer = known->layer;
      same += content.size();
    };
    for_each_page(compare_page, [&] {
      same_ += same;
      stored_.add(std::exchange(same, 0));
    });
  }

  // Bytes of a file that are stored. Pages that are the same as in the former checkpoint are counted already, and of
  // the rest no more than what the pages have is expected yet.
  void count(std::uint64_t bytes) {
    const std::uint64_t before = std::exchange(bytes_, bytes_ + bytes);
    if (before >= wanted_.bytes()) return;
    const std::uint64_t pages = std::min(bytes, wanted_.bytes() - before);
    const std::uint64_t known = std::min(pages, same_);
    same_ -= known;
    stored_.add(pages - known);
  }

  // The layers of the former checkpoint that have pages of this one become its first ones.
  void link() {
    std::map<std::uint32_t, std::uint64_t> used;  // bytes of the layers
    std::uint64_t bytes = 0;
    for (const auto& page : pages_) {
      if (!page.layer) {
        bytes += kPage;
      } else if (used.emplace(*page.layer, former_.bytes_of({process_, *page.layer})).second) {
        bytes += used.at(*page.layer);
      }
    }
    if (used.size() >= kMostLayers || bytes > kMostOfPages * wanted_.bytes()) return;
    for (const auto& [layer, size] : used) {
      const Layer as{process_, static_cast<std::uint32_t>(linked_.size())};
      if (!former_.link({process_, layer}, as, writer_)) continue;
      linked_[layer] = as.number;
      count(size);
    }
  }

  // Nothing: it is in the layer that is new.
  std::optional<std::uint32_t> linked_layer(const Page& page) const {
    const auto found = page.layer ? linked_.find(*page.layer) : linked_.end();
    return found == linked_.end() ? std::nullopt : std::optional(found->second);
  }

  void write_layer() {
    PageRanges fresh;
    for (const auto& page : pages_) {
      if (!linked_layer(page)) fresh.add(page.address, page.address + kPage);
    }
    if (fresh.empty()) return;
    writer_.end_shard();
    writer_.begin_file(precopy::pages_file({process_, fresh_layer()}), 0600);
    precopy::write_pages(memory_, process_, fresh, [this](std::span<const std::byte> piece) {
      need_wanted_();
      writer_.write(piece);
      count(piece.size());
    });
    writer_.end_shard();
  }

  void write_index() {
    PagesIndex index;
    for (const auto& page : pages_) {
      index.add(page.address, {linked_layer(page).value_or(fresh_layer()), page.digest});
    }
    writer_.end_shard();
    writer_.begin_file(precopy::index_file(process_), 0600);
    const auto file = index.file();
    writer_.write(file);
    count(file.size());
    writer_.end_shard();
  }

  std::uint32_t fresh_layer() const { return static_cast<std::uint32_t>(linked_.size()); }

  store::ImageWriter& writer_;
  const precopy::PageStore& memory_;
  const std::int32_t process_;
  const PageRanges& wanted_;
  const FormerMemory& former_;
  StoredBytes& stored_;
  const std::function<void()>& need_wanted_;
  std::vector<Page> pages_;
  std::uint64_t bytes_ = 0;  // of the files that were written or linked
  std::uint64_t same_ = 0;   // of pages that are counted before they are written or linked
  std::map<std::uint32_t, std::uint32_t> linked_;  // layers here, by those of the former checkpoint
};

}  // namespace

FormerMemory::FormerMemory(const std::string& directory,
                           const std::vector<store::Store::Entry>& known, const Cut::Part& part,
                           const std::string& host, const std::optional<store::ContentKey>& key) {
  if (part.left_out.empty()) return;
  for (const auto& entry : known | std::views::reverse) {
    const auto program = entry.manifest ? program_of(*entry.manifest, part, host) : std::nullopt;
    if (!program || !is_written_with(*entry.manifest, key)) continue;
    try {
      need_own_contents(directory + "/" + entry.id);
      checkpoint_.emplace(store::Store(directory).open(entry.id));
      if (key) checkpoint_->unlock(*key);
      read(*program);
    } catch (const std::exception&) {
      indices_.clear();  // it was deleted meanwhile, or is damaged: the new one does without
    }
    return;
  }
}

void FormerMemory::read(std::size_t program) {
  program_ = program;
  const auto& files = checkpoint_->manifest().programs.at(program).files;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const auto process = precopy::process_of_index_file(files[i].name);
    if (!process) continue;
    std::vector<std::byte> content;
    checkpoint_->read_file(program, i, [&](std::span<const std::byte> piece) {
      content.insert(content.end(), piece.begin(), piece.end());
    });
    indices_[*process] = PagesIndex::parse(content, files[i].name);
  }
}

std::optional<PagesIndex::Page> FormerMemory::find(std::int32_t process,
                                                   std::uint64_t address) const {
  const auto index = indices_.find(process);
  if (index == indices_.end()) return std::nullopt;
  return index->second.find(address);
}

std::uint64_t FormerMemory::bytes_of(const Layer& layer) const {
  const auto& program = checkpoint_->manifest().programs[program_];
  const auto file = file_of(program, precopy::pages_file(layer));
  return file ? program.files[*file].bytes : 0;
}

bool FormerMemory::link(const Layer& layer, const Layer& as, store::ImageWriter& writer) const {
  const auto& program = checkpoint_->manifest().programs[program_];
  const auto file = file_of(program, precopy::pages_file(layer));
  return file && writer.link_file(precopy::pages_file(as), *checkpoint_, program_, *file);
}

std::uint64_t memory_to_store(const Cut::Part& part) {
  std::uint64_t bytes = 0;
  for (const auto& [process, pages] : part.left_out) bytes += pages.bytes();
  return bytes;
}

void write_memory(store::ImageWriter& writer, const Cut::Part& part, const FormerMemory& former,
                  StoredBytes& stored, const std::function<void()>& need_wanted) {
  for (const auto& [process, pages] : part.left_out) {
    Process(writer, part, process, former, stored, need_wanted).write();
  }
}

}  // namespace ferry::host
