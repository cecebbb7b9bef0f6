#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/failure.h"
#include "base/unique_fd.h"

// What the store asks of the file system. All throw Failure, which names the file.
namespace ferry::store {

// A Failure that says `what`, and errno, in one line.
Failure cannot(const std::string& what);

UniqueFd open_folder(const std::string& path);
// A regular file of the folder, to read: no symbolic link, nor anything that blocks whoever opens it.
UniqueFd open_file(const UniqueFd& folder, const std::string& path, const std::string& name);
// A new file of the folder, to write, which its owner alone may read.
UniqueFd make_file(const UniqueFd& folder, const std::string& path, const std::string& name);

void write_all(const UniqueFd& file, std::span<const std::byte> bytes, const std::string& path);
// Bytes that were read; fewer than asked for at the end of the file.
std::size_t read_some(const UniqueFd& file, std::span<std::byte> bytes, const std::string& path);
void sync(const UniqueFd& file, const std::string& path);

// The names in a folder, sorted.
std::vector<std::string> names_in(const std::string& path);

// True for what names a file of a folder and nothing elsewhere.
bool is_plain_name(const std::string& name);

}  // namespace ferry::store
